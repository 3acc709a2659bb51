"""Workers killed one after the other beside living ones: how long until their jobs run again, and whether any runs
twice.

A round is one job whose worker was killed by SIGKILL. Every run of a job writes its process and time into the job's
log, so a run that began while another process had the job is found, also when that one was killed later.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from bench.measure import Result, median, percentile
from recovery.reads.stuck import inbox_store
from tests.support.processes.driver import Driver
from tests.support.processes.fleet import Fleet, Library, Queue
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until

LIBRARIES = ("bull4", "bull3", "bullmq6")
ROUNDS = 1_000  # of each library
MINUTES = 30.0  # at most, for all of them
LOCK = 30.0  # seconds: the default of the libraries
QUEUES = 8
CONCURRENCY = 20  # so that a job that is put back never waits for a free worker
PROCESSES = 5  # each with a worker of every queue
JOBS = 3  # in each queue, that hang until their worker is killed; of 5 a look may find 20 lost: auto-recovery pauses
PAUSE = 4.0  # seconds between two deaths
SHORT = 1.0  # seconds that a worker lives at least: less than a snapshot takes
YOUNGEST = 3  # after so many deaths the youngest dies
YOUNG = 10.0  # seconds: a job that is older has lost a worker before
AFTER_END = (5.0, 10.0)  # seconds from the end of the lock, p50 and p99
CHECKS = 2 * 30.0  # of the library: what is not back then never will be
_ARMED = '[policy.orphan_watch]\nmode = "enabled"\n'


@dataclass(slots=True)
class Death:
    """A job whose worker was killed, by the store's clock in ms."""

    queue: Queue
    job: str
    at: int
    lock_end: int


@dataclass(slots=True)
class Soak:
    """One library on a store of its own, watched by a scheduler at its defaults that may requeue."""

    library: Library
    store: Store
    queues: list[Queue] = field(default_factory=list)
    living: list[Driver] = field(default_factory=list)
    killed: dict[int, int] = field(default_factory=dict)  # pid → when
    deaths: list[Death] = field(default_factory=list)

    def hire(self) -> None:
        """One process more."""
        driver = self.library.spawn()
        for queue in self.queues:
            queue.work("young", inside=driver, lockDuration=int(LOCK * 1000), concurrency=CONCURRENCY)
        self.living.append(driver)

    def replace(self, *, oldest: bool) -> None:
        """The process that has lived longest, or shortest, is killed with all that it holds, and another one begins."""
        self._kill(self.living.pop(0 if oldest else -1))
        self.hire()
        self.fill()

    def _kill(self, driver: Driver) -> None:
        held = [(queue, job) for queue in self.queues for job, runs in self.active(queue) if runs[-1][0] == driver.pid]
        left = [self.store.client.pttl(queue.key(job, "lock")) for queue, job in held]
        at = self.now()
        driver.kill()
        self.killed[driver.pid] = self.now()
        self.deaths += [Death(*one, at, at + ttl) for one, ttl in zip(held, left, strict=True) if ttl > 0]

    def fill(self) -> None:
        """Every queue has its jobs, those that wait for a rescue not counted."""
        for queue in self.queues:
            lives = sum(runs[-1][0] not in self.killed for _, runs in self.active(queue))
            for _ in range(JOBS - lives):
                queue.add("soak", {"ms": int(YOUNG * 1000)})

    def active(self, queue: Queue) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        for job in self.store.client.lrange(queue.key("active"), 0, -1):
            if runs := self.runs(queue, job.decode()):
                yield job.decode(), runs

    def runs(self, queue: Queue, job: str) -> list[tuple[int, int]]:
        """Process and time of each."""
        lines: Any = self.store.client.lrange(queue.key(job, "logs"), 0, -1)
        return [(int(pid), int(at)) for pid, at in (line.split() for line in lines)]

    def back(self, death: Death) -> int | None:
        """When it ran again."""
        return next((at for _, at in self.runs(death.queue, death.job) if at > death.at), None)

    def twice(self) -> int:
        """Runs that began while the process of an earlier one was alive and had not ended it."""
        found = 0
        for queue in self.queues:
            for number in range(1, int(self.store.client.get(queue.key("id")) or 0) + 1):
                runs = self.runs(queue, str(number))
                found += sum(self.killed.get(pid, at + 1) > at for (pid, _), (_, at) in pairwise(runs))
        return found

    def now(self) -> int:
        seconds, micros = self.store.client.time()
        return int(seconds) * 1000 + int(micros) // 1000


def run(*, quick: bool, minutes: float | None = None) -> Result:
    libraries = LIBRARIES[:1] if quick else LIBRARIES
    rounds = ROUNDS // 20 if quick else ROUNDS
    seconds = (minutes or (2.0 if quick else MINUTES)) * 60 / len(libraries)
    result = Result("soak", "Workers killed beside living ones: their jobs run again, and none runs twice")
    for name in libraries:
        with ExitStack() as stack:
            _one(result, stack, name, rounds, seconds)
    return result


def _one(result: Result, stack: ExitStack, name: str, rounds: int, seconds: float) -> None:
    soak, scheduler = _prepared(stack, name)
    result.setting[soak.library.label] = soak.library.version
    deadline = time.monotonic() + seconds
    while len(soak.deaths) < rounds and time.monotonic() < deadline:
        time.sleep(PAUSE)
        soak.replace(oldest=True)
        if len(soak.killed) % YOUNGEST == 0:
            time.sleep(SHORT)
            soak.replace(oldest=False)
    last = time.monotonic() + LOCK + CHECKS
    while time.monotonic() < last and any(soak.back(death) is None for death in soak.deaths):
        time.sleep(0.5)
    _rows(result, soak, scheduler)


def _rows(result: Result, soak: Soak, scheduler: WebProcess) -> None:
    name = soak.library.label
    back = [(death, at) for death in soak.deaths if (at := soak.back(death)) is not None]
    result.row(f"{name}: rounds", len(soak.deaths), f"jobs of {len(soak.killed)} workers that were killed")
    result.goal(f"{name}: left behind", len(soak.deaths) - len(back), most=0)
    result.goal(f"{name}: run twice", soak.twice(), most=0)
    if not back:
        return
    put_back = scheduler.ask("SELECT count(*) FROM recovery_incident WHERE resolved_by = 'scanner'")
    result.row(f"{name}: put back by Unstall", put_back[0][0], "and the rest by the library")
    after = [(at - death.at) / 1000 for death, at in back]
    late = [(at - death.lock_end) / 1000 for death, at in back]
    result.row(f"{name}: after the kill", median(after), "s p50", _spread(after))
    result.row(f"{name}: after the lock's end", median(late), "s p50", _spread(late))
    result.goal(f"{name}: after the lock's end, p50 ≤ {AFTER_END[0]:g} s", median(late), most=AFTER_END[0])
    result.goal(f"{name}: after the lock's end, p99 ≤ {AFTER_END[1]:g} s", percentile(late, 0.99), most=AFTER_END[1])


def _spread(seconds: list[float]) -> str:
    return f"p90 {percentile(seconds, 0.9):.1f} s, p99 {percentile(seconds, 0.99):.1f} s, worst {max(seconds):.1f} s"


def _prepared(stack: ExitStack, name: str) -> tuple[Soak, WebProcess]:
    store, fleet = stack.enter_context(Store("valkey")), Fleet()
    stack.callback(fleet.stop)
    library = fleet[name]
    stack.callback(library.reset)
    soak = Soak(library, store, [library.queue(store, f"q{number}") for number in range(QUEUES)])
    for _ in range(PROCESSES):
        soak.hire()
    soak.fill()
    until(lambda: sum(1 for queue in soak.queues for _ in soak.active(queue)) == QUEUES * JOBS, 60, "all are at work")
    scheduler = _schedule(stack, store)
    # A store that has just started holds every scanner until each worker had the time to renew.
    until(lambda: store.client.info("server")["uptime_in_seconds"] > 2 * LOCK + 2, 120, "the store is old enough")
    return soak, scheduler


def _schedule(stack: ExitStack, store: Store) -> WebProcess:
    """Of which only the directory, with its database, is used here."""
    state = stack.enter_context(Store("valkey"))
    environ = {"UNSTALL_REDIS_URL": store.url, "UNSTALL_STATE_URL": state.url}
    process = WebProcess(environ)
    directory = process.directory
    (directory / "unstall.toml").write_text(_ARMED)
    command = [sys.executable, "manage.py", "scheduler"]
    log = stack.enter_context((directory / "scheduler.log").open("wb"))
    stack.callback(end, spawn(command, environ=environ_of(directory, environ), directory=ROOT, stdout=log, stderr=log))
    until(lambda: (found := inbox_store.fetch(state.client)) and found.looked >= QUEUES, 60, "the watch has looked")
    return process
