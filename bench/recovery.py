"""How long until a dead worker's job can run again: BullMQ by itself beside Unstall, workers killed by SIGKILL.

All ways stand side by side, each on a store of its own, and their workers are killed at the same moments. When a job
went back to wait is told by the library's own event stream, by the store's clock.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.measure import Result, median, percentile
from recovery.reads.stuck import inbox_store
from tests.support.processes.driver import Driver
from tests.support.processes.fleet import Fleet, Library, Queue
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until

LIBRARY = "bullmq6"
QUEUES = 40
TOGETHER = 5  # queues whose workers live in one process, and die with it
APART = 1.7  # seconds between two deaths
LOCKS = (10.0, 30.0)  # seconds
# BullMQ at its defaults needs the lock's time and two of its checks, 30 s apart: what is not back then never will be.
CHECKS = 2 * 30.0
SLACK = 30.0
PAUSE = 2  # lock lengths
AFTER_EXPIRY = (5.0, 10.0)  # p50, p99
RELEASED = 5.0  # after the kill
_ARMED = '[policy.orphan_watch]\nmode = "enabled"\n'


@dataclass(frozen=True, slots=True)
class Way:
    """`policy` None: without Unstall. `named`: its workers say who they are. `second`: another worker lives on."""

    title: str
    policy: str | None
    named: bool
    second: bool


_ALONE = Way("BullMQ by itself, a second worker alive", None, named=False, second=True)
_NOBODY = Way("BullMQ by itself, no worker alive", None, named=False, second=False)
_WATCHED = Way("Unstall, no worker alive", _ARMED, named=False, second=False)
_RELEASED = Way("Unstall, named workers, release allowed", f"{_ARMED}release = true\n", named=True, second=True)
WAYS = (_ALONE, _NOBODY, _WATCHED, _RELEASED)


@dataclass(slots=True)
class Death:
    """One job whose worker was killed, by the store's clock in seconds."""

    queue: Queue
    job: str
    at: float
    expiry: float


@dataclass(slots=True)
class Scene:
    """One way, on its store."""

    way: Way
    store: Store
    library: Library
    queues: list[Queue] = field(default_factory=list)
    holders: list[Driver] = field(default_factory=list)
    jobs: dict[str, str] = field(default_factory=dict)
    deaths: list[Death] = field(default_factory=list)

    def begin(self, lock: float) -> None:
        """Every queue gets a worker that holds its one job."""
        for start in range(0, len(self.queues), TOGETHER):
            driver = self.library.spawn()
            self.holders.append(driver)
            for queue in self.queues[start : start + TOGETHER]:
                _work(driver, queue, "hang", lock, f"holder-{queue.name}" if self.way.named else "")
                self.jobs[queue.name] = queue.add()
        until(lambda: all(queue.counts()["active"] == 1 for queue in self.queues), 60, "every worker has its job")

    def kill(self, number: int) -> None:
        """One process, with all that it holds."""
        mine = self.queues[number * TOGETHER : (number + 1) * TOGETHER]
        left = [self.store.client.pttl(queue.key(self.jobs[queue.name], "lock")) / 1000 for queue in mine]
        self.holders[number].kill()
        at = self.now()
        self.deaths += [
            Death(queue, self.jobs[queue.name], at, at + ttl) for queue, ttl in zip(mine, left, strict=True)
        ]

    def now(self) -> float:
        seconds, micros = self.store.client.time()
        return float(seconds) + float(micros) / 1e6

    def uptime(self) -> int:
        return int(self.store.client.info("server")["uptime_in_seconds"])

    def back(self, death: Death) -> float | None:
        """When it went back to wait after the death; None: it has not."""
        start = f"{int(death.at * 1000)}-0"
        events: Any = self.store.client.xrange(death.queue.key("events"), min=start)
        for id, event in events:
            if event.get(b"event") == b"waiting" and event.get(b"jobId", b"").decode() == death.job:
                return int(id.partition(b"-")[0]) / 1000
        return None


def run(*, quick: bool) -> Result:
    locks = LOCKS[:1] if quick else LOCKS
    queues = QUEUES // 4 if quick else QUEUES
    result = Result("recovery", f"A dead worker's job can run again: {queues} queues, workers killed by SIGKILL")
    for lock in locks:
        _one(result, lock, queues)
    return result


def _one(result: Result, lock: float, queues: int) -> None:
    with ExitStack() as stack:
        scenes = [stack.enter_context(_scene(way, lock, queues)) for way in WAYS]
        # A store that has just started holds every scanner until each worker had the time to renew.
        until(lambda: all(scene.uptime() > PAUSE * lock + 2 for scene in scenes), 120, "the stores are old enough")
        result.setting = {"library": scenes[0].library.version, "queues": queues, "locks": LOCKS}
        for number in range(queues // TOGETHER):
            for scene in scenes:
                scene.kill(number)
            time.sleep(APART)
        deadline = time.monotonic() + lock + CHECKS + SLACK
        while time.monotonic() < deadline and not all(_is_over(scene) for scene in scenes if scene.way is not _NOBODY):
            time.sleep(0.5)
        for scene in scenes:
            _rows(result, scene, lock)


def _is_over(scene: Scene) -> bool:
    return all(scene.back(death) is not None for death in scene.deaths)


def _rows(result: Result, scene: Scene, lock: float) -> None:
    found = [(death, scene.back(death)) for death in scene.deaths]
    back = [(death, at) for death, at in found if at is not None]
    name = f"lock {lock:g} s, {scene.way.title}"
    result.row(f"{name}: came back", len(back), f"of {len(found)}")
    if not back:
        return
    after = [at - death.at for death, at in back]
    result.row(f"{name}: after the kill", median(after), "s p50", _spread(after))
    if scene.way.policy is None:
        return
    if scene.way is _RELEASED:
        result.goal(f"{name}: after the kill, worst ≤ {RELEASED:g} s", max(after), most=RELEASED)
    else:
        late = [at - death.expiry for death, at in back]
        result.row(f"{name}: after the lock's end", median(late), "s p50", _spread(late))
        result.goal(f"{name}: after the lock's end, p50 ≤ {AFTER_EXPIRY[0]:g} s", median(late), most=AFTER_EXPIRY[0])
        worst = percentile(late, 0.99)
        result.goal(f"{name}: after the lock's end, p99 ≤ {AFTER_EXPIRY[1]:g} s", worst, most=AFTER_EXPIRY[1])
    result.goal(f"{name}: left behind", len(found) - len(back), most=0)


def _spread(seconds: Sequence[float]) -> str:
    return f"p99 {percentile(seconds, 0.99):.1f} s, best {min(seconds):.1f} s"


@contextmanager
def _scene(way: Way, lock: float, queues: int) -> Iterator[Scene]:
    """Every queue has one job, held by a worker that will die."""
    with Store("valkey") as store, ExitStack() as stack:
        fleet = Fleet()
        stack.callback(fleet.stop)
        library = fleet[LIBRARY]
        scene = Scene(way, store, library, [library.queue(store, f"q{number}") for number in range(queues)])
        stack.callback(library.reset)  # first: a job that is let go must not be taken for one that came back
        scene.begin(lock)
        if way.second:
            driver = library.spawn()
            for queue in scene.queues:
                _work(driver, queue, "ok", lock, f"second-{queue.name}" if way.named else "")
        if way.policy is not None:
            _schedule(stack, store, way.policy, queues)
        yield scene


def _work(driver: Driver, queue: Queue, processor: str, lock: float, name: str) -> None:
    options = {"name": name} if name else {}
    queue.work(processor, inside=driver, lockDuration=int(lock * 1000), **options)


def _schedule(stack: ExitStack, store: Store, policy: str, queues: int) -> None:
    """A scheduler at its defaults, with a policy that lets it act."""
    state = stack.enter_context(Store("valkey"))
    environ = {"UNSTALL_REDIS_URL": store.url, "UNSTALL_STATE_URL": state.url}
    directory = WebProcess(environ).directory
    (directory / "unstall.toml").write_text(policy)
    command = [sys.executable, "manage.py", "scheduler"]
    log = stack.enter_context((directory / "scheduler.log").open("wb"))
    stack.callback(end, spawn(command, environ=environ_of(directory, environ), directory=ROOT, stdout=log, stderr=log))
    until(lambda: _looked(state) >= queues, 60, "the watch has looked at every job")


def _looked(state: Store) -> int:
    found = inbox_store.fetch(state.client)
    return found.looked if found else 0
