"""The real libraries: Bull 3 and 4, BullMQ 3 to 6, each in a Node process, driven from Python.

queue = libraries["bullmq5"].queue(valkey)
job = queue.add("send", {"to": "me"}, attempts=3)      # options are the library's own, in its own spelling
worker = queue.work("hang", lockDuration=500, apart=True)
worker.kill()
assert queue.counts()["active"] == 1                   # what the library itself says
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.support.processes.driver import Driver

GENERATIONS = ("bull3", "bull4", "bullmq3", "bullmq4", "bullmq5", "bullmq6")
OF_N8N = "bull416"  # the one that n8n runs on, since 1.92: no generation of its own
PREFIX = "bull"  # the default of both libraries


class Where(Protocol):
    """Anything with an address: a Store, a Sentinel, a Cluster."""

    @property
    def url(self) -> str: ...


class Fleet(Mapping[str, "Library"]):
    """All generations by name; each starts when it is first asked for and lives until the end."""

    def __init__(self) -> None:
        self._libraries: dict[str, Library] = {}

    def __getitem__(self, name: str) -> Library:
        if name not in (*GENERATIONS, OF_N8N):
            raise KeyError(name)
        if name not in self._libraries:
            self._libraries[name] = Library(name)
        return self._libraries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(GENERATIONS)

    def __len__(self) -> int:
        return len(GENERATIONS)

    def library(self, name: str) -> Library:
        return self[name]

    def reset(self) -> None:
        """No worker and no connection is left of the last test."""
        for library in self._libraries.values():
            library.reset()

    def stop(self) -> None:
        for library in self._libraries.values():
            library.stop()


class Library:
    """One generation of one library."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._driver = Driver(name)
        self._apart: list[Driver] = []

    @property
    def driver(self) -> Driver:
        """The shared process; a fresh one when a test has killed the last."""
        if not self._driver.is_running:
            self._driver.stop()
            self._driver = Driver(self.name)
        return self._driver

    @property
    def version(self) -> str:
        return self._driver.version

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0])

    @property
    def is_bull(self) -> bool:
        return not self.name.startswith("bullmq")

    @property
    def label(self) -> str:
        return f"{'Bull' if self.is_bull else 'BullMQ'} {self.major}"

    def queue(self, where: Where, name: str = "", *, prefix: str = PREFIX) -> Queue:
        """A queue of this library; without a name, one that nobody has used."""
        return Queue(self, where.url, prefix, name or f"q-{secrets.token_hex(4)}")

    def ask(self, op: str, **command: Any) -> Any:
        return self.driver.ask(op, **command)

    def spawn(self) -> Driver:
        """A process of its own for a worker that is going to be killed."""
        driver = Driver(self.name)
        self._apart.append(driver)
        return driver

    def kill(self) -> None:
        """SIGKILL for everything that runs in the shared process: its workers die in the middle of their jobs."""
        self._driver.kill()

    def reset(self) -> None:
        for driver in self._apart:
            driver.kill()
        self._apart.clear()
        if self._driver.is_running and self._driver.ask("reset"):
            self._driver.kill()  # something would not close; the next test gets a fresh process

    def stop(self) -> None:
        for driver in (*self._apart, self._driver):
            driver.stop()
        self._apart.clear()


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue as its library sees it. Every answer is what the library's own API says, in its own words."""

    library: Library
    url: str
    prefix: str
    name: str

    @property
    def base(self) -> str:
        return f"{self.prefix}:{self.name}"

    def key(self, *parts: str) -> str:
        return ":".join((self.base, *parts))

    def add(self, name: str = "job", payload: Any = None, **options: Any) -> str:
        return str(self._ask("add", name=name, data=_payload(payload), opts=options))

    def add_many(self, count: int, name: str = "job", payload: Any = None, **options: Any) -> list[str]:
        """The same job `count` times, in batches that the library makes in one go."""
        one: dict[str, Any] = {"name": name, "data": _payload(payload), "opts": options}
        sizes = (min(_BATCH, count - start) for start in range(0, count, _BATCH))
        return [job for size in sizes for job in self.add_bulk([one] * size)]

    def add_bulk(self, jobs: Sequence[Mapping[str, Any]]) -> list[str]:
        """Jobs as `{"name", "data", "opts"}`."""
        return [str(job) for job in self._ask("addBulk", jobs=list(jobs))]

    def add_flow(self, children: Iterable[Mapping[str, Any]], name: str = "parent", **options: Any) -> dict[str, Any]:
        """A parent here with children as `{"name", "data", "opts", "queueName", "children"}`; this queue by default.

        Answers the ids as a tree: `{"id", "queue", "children"}`.
        """
        tree: dict[str, Any] = {
            "name": name,
            "queueName": self.name,
            "prefix": self.prefix,
            "data": {},
            "opts": options,
        }
        tree["children"] = [self._child(child) for child in children]
        return dict(self._ask("addFlow", tree=tree))

    def schedule(self, schedule: str, when: Mapping[str, Any], name: str = "tick", payload: Any = None) -> str:
        """`when` is `{"every": ms}` or `{"pattern": cron}`, with `tz`, `limit`, … A scheduler or a repeatable job."""
        return str(
            self._ask("schedule", schedule=schedule, when=dict(when), job={"name": name, "data": _payload(payload)})
        )

    def schedules(self) -> list[dict[str, Any]]:
        return list(self._ask("schedules"))

    def counts(self) -> dict[str, int]:
        return dict(self._ask("counts"))

    def job(self, job: str) -> dict[str, Any] | None:
        """The job's fields and its `state`; None when the library knows no such job."""
        answer = self._ask("job", job=job)
        return None if answer is None else dict(answer)

    def jobs(self, *states: str, start: int = 0, end: int = -1, ascending: bool = False) -> list[dict[str, Any]]:
        return list(self._ask("jobs", states=list(states), start=start, end=end, ascending=ascending))

    def metrics(self, kind: str, start: int = 0, end: int = -1) -> dict[str, Any]:
        return dict(self._ask("metrics", kind=kind, start=start, end=end))

    def workers(self) -> list[dict[str, Any]]:
        return list(self._ask("workers"))

    def logs(self, job: str, start: int = 0, end: int = -1) -> dict[str, Any]:
        return dict(self._ask("logs", job=job, start=start, end=end))

    def dependencies(self, job: str) -> dict[str, Any]:
        return dict(self._ask("dependencies", job=job))

    def pause(self) -> None:
        self._ask("pause")

    def resume(self) -> None:
        self._ask("resume")

    def is_paused(self) -> bool:
        return bool(self._ask("isPaused"))

    def obliterate(self, *, force: bool = True) -> None:
        self._ask("obliterate", force=force)

    def call(self, method: str, *arguments: Any) -> Any:
        """Any other method of the library's Queue."""
        return self._ask("call", method=method, args=list(arguments))

    def call_job(self, job: str, method: str, *arguments: Any) -> Any:
        """Any other method of the library's Job (what it answers must be JSON)."""
        return self._ask("callJob", job=job, method=method, args=list(arguments))

    def work(
        self, processor: str = "ok", *, apart: bool = False, inside: Driver | None = None, **options: Any
    ) -> Worker:
        """A worker of this queue: `ok fail hang log progress slow young tracked`.

        `apart`: in a process of its own that can be killed; `inside`: in this one, perhaps with other workers.
        """
        driver = inside or (self.library.spawn() if apart else self.library.driver)
        worker = Worker(driver, secrets.token_hex(4), apart or inside is not None)
        driver.ask("work", worker=worker.id, queue=self._where(), processor=processor, options=options)
        return worker

    def _ask(self, op: str, **command: Any) -> Any:
        return self.library.ask(op, queue=self._where(), **command)

    def _where(self) -> dict[str, str]:
        return {"url": self.url, "prefix": self.prefix, "name": self.name}

    def _child(self, child: Mapping[str, Any]) -> dict[str, Any]:
        own = {"name": "child", "queueName": self.name, "prefix": self.prefix, "data": {}}
        return own | dict(child) | {"children": [self._child(one) for one in child.get("children", ())]}


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker of the real library."""

    driver: Driver
    id: str
    is_apart: bool

    @property
    def pid(self) -> int:
        return self.driver.pid

    def events(self, kind: str = "") -> list[tuple[str, str | None]]:
        """What it went through so far, as (event, job id): active, completed, failed, stalled."""
        return [(event, job) for event, job in self.driver.ask("events", worker=self.id) if kind in ("", event)]

    def release(self) -> int:
        """Let the jobs of a `hang` worker finish; how many there were."""
        return int(self.driver.ask("release", worker=self.id))

    def close(self, *, force: bool = False) -> None:
        self.driver.ask("closeWorker", worker=self.id, force=force)

    def kill(self) -> None:
        """SIGKILL in the middle of its work."""
        self._own().kill()

    def pause(self) -> None:
        """SIGSTOP: still connected, renews nothing."""
        self._own().pause()

    def resume(self) -> None:
        self._own().resume()

    def _own(self) -> Driver:
        if not self.is_apart:
            raise RuntimeError("this worker shares its process with others: work(apart=True)")
        return self.driver


_BATCH = 1000


def _payload(payload: Any) -> Any:
    return {} if payload is None else payload
