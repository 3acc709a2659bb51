"""Workers killed for an hour, the library alone beside the same with Unstall: what becomes of every job.

BullMQ 5, BullMQ 6 and Bull 4, each once alone and once with Unstall, each of the six on a Redis of its own. Both sides
of a library get the same jobs, and the same one of their four worker processes, with two workers each, is killed by
SIGKILL at the same moment, every 1.5 to 2.5 s, and started anew. All scanners may act, with `release`, and an
operator acts at random through the API. Every run of a job writes into the job's log which process began it, when, and
when it ended, so at the end it is known of each job how often it ran, and whether two had it at once.

    python -m bench end_to_end                    # 60 minutes, and some five before and behind
    python -m bench end_to_end --minutes 8
    python -m bench end_to_end --quick            # 2 minutes: to see that it works

It needs what `make setup-test` installs, 4 GB of memory, and both of two cores to itself: 24 Node processes with
workers, three web processes, three schedulers. What this program takes of them itself is one of the rows.
"""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psutil

from bench.measure import Result, median, percentile
from bench.product import Product, installed
from tests.support.processes.driver import Driver
from tests.support.processes.fleet import Fleet, Library, Queue
from tests.support.stores.stores import Store
from tests.support.waiting import until

LIBRARIES = ("bullmq5", "bullmq6", "bull4")
MINUTES, QUICK_MINUTES = 60.0, 2.0
QUEUES = ("mail", "reports")
PROCESSES = 4  # each with a worker of every queue: eight workers a side
APART = (1.5, 2.5)  # seconds between two kills of one side
JOBS_A_SECOND = 4.0  # of one side: its workers are at work for a third of the time
FED_EVERY = 0.25  # seconds: with all jobs right behind a kill most were done before the next one
JOB_MS = (100, 1_100)
ACTS_APART = (2.0, 6.0)  # seconds
PAUSED = (1.0, 3.0)  # seconds that the operator pauses a queue
LOCK = 30.0  # seconds: the default of the libraries
SETTLING = 150.0  # seconds at most, behind the last kill: the library's own checks need most of it
JUST_ENDED_MS = 400  # whoever dies so soon after the end of a job has not reported it: no one can know that it ended
AGAIN_P99 = LOCK + 10.0  # seconds from the kill
HIRED_WITHIN = 15.0  # seconds until all workers are there, and the first is killed
LATE = 0.5  # seconds behind its moment: later kills hit the two sides differently
MEMORY = 1.15  # of the scheduler, the last third against the first
SAMPLE = 5.0  # seconds between two looks at the memory
SEED = 14
_ARMED = """
[policy]
idempotency = "these jobs only wait for a moment"
[policy.orphan_watch]
mode = "enabled"
release = true
[policy.stale_check]
mode = "enabled"
release = true
[policy.auto_retry]
mode = "enabled"
"""
_LISTS = ("wait", "paused", "active")
_SETS = ("prioritized", "delayed", "waiting-children", "completed", "failed")
_OPEN = ("wait", "paused", "active", "prioritized", "delayed", "waiting-children")


@dataclass(frozen=True, slots=True)
class Kill:
    """When a process is killed, in seconds from the beginning, and which one."""

    at: float
    place: int


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job, as the worker wrote it down; ms."""

    process: int
    began: int
    ended: int | None


@dataclass(slots=True)
class Side:
    """One library on a Redis of its own. `product`: what watches it; None where it is alone."""

    library: Library
    store: Store
    product: Product | None
    queues: list[Queue]
    living: list[Driver] = field(default_factory=list)
    killed: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))  # process → ms
    late: list[float] = field(default_factory=list)  # seconds, of each kill
    added: int = 0
    hired: int = 0

    @property
    def name(self) -> str:
        return self.library.label

    def live(self, kills: Sequence[Kill], began: float) -> None:
        """Until all is over: one thread a side, because a child of it ends with its thread."""
        dice = random.Random(f"{SEED} jobs {self.library.name}")
        for place in range(PROCESSES):
            self.living.append(self._hire(place))
        for kill in kills:
            while (left := began + kill.at - time.monotonic()) > 0:
                self._feed(dice, kill.at - left)
                time.sleep(min(FED_EVERY, left))  # bench only: the same moment on both sides
            self.late.append(time.monotonic() - began - kill.at)
            self._kill(self.living[kill.place])
            self.living[kill.place] = self._hire(kill.place)
        last = time.monotonic() + SETTLING
        while time.monotonic() < last and self.unfinished():
            time.sleep(0.5)

    def unfinished(self) -> int:
        """Jobs that are to run still. A failed one is, where auto-retries are allowed."""
        names = (*_OPEN, *(["failed"] if self.product else []))
        asked = self.store.client.pipeline(transaction=False)
        for queue in self.queues:
            for name in names:
                asked.llen(queue.key(name)) if name in _LISTS else asked.zcard(queue.key(name))
        return sum(asked.execute())

    def _hire(self, place: int) -> Driver:
        driver = self.library.spawn()
        for queue in self.queues:
            self.hired += 1
            named = {} if self.library.is_bull else {"name": f"worker-{place}-{self.hired}"}
            queue.work("tracked", inside=driver, lockDuration=int(LOCK * 1000), **named)
        return driver

    def _kill(self, driver: Driver) -> None:
        self.killed[driver.pid].append(_now())
        driver.kill()

    def _feed(self, dice: random.Random, at: float) -> None:
        """Adds what is due by now, the same jobs in the same order on both sides."""
        batches: dict[int, list[dict[str, Any]]] = defaultdict(list)
        while self.added < int(at * JOBS_A_SECOND):
            job = {"name": "job", "data": {"ms": dice.randint(*JOB_MS)}, "opts": {}}
            batches[self.added % len(self.queues)].append(job)
            self.added += 1
        for number, jobs in batches.items():
            self.queues[number].add_bulk(jobs)


def _now() -> int:
    return int(time.time() * 1000)


# -- somebody who acts


class RandomOperator:
    """Acts at random through the API of one product, by what the API shows. `removed`: jobs by queue."""

    def __init__(self, side: Side, product: Product) -> None:
        self._side, self._product = side, product
        self._dice = random.Random(f"{SEED} acts {side.library.name}")
        self.came_to: Counter[str] = Counter()
        self.removed: dict[str, set[str]] = defaultdict(set)

    def act(self, over: threading.Event) -> None:
        careful = (self._orphan, self._orphan, self._failed, self._remove, self._pause, self._bulk)
        acts = (*careful, self._by_id, self._active)
        while not over.wait(self._dice.uniform(*ACTS_APART)):
            queue = self._dice.choice(self._side.queues)
            try:
                self._dice.choice(acts)(queue)
            except (OSError, ValueError, KeyError) as error:  # no answer, or one that is none
                self.came_to[f"no answer: {type(error).__name__}"] += 1
        for queue in self._side.queues:  # none stays paused
            self._order("resume", f"main/{queue.base}")

    def _orphan(self, _: Queue) -> None:
        """What is stuck, with the action that the inbox suggests; of quarantined jobs it is a person who decides."""
        status, told = self._product.call("GET", "/orphans")
        if status == 200 and told["orphans"]:
            one = self._dice.choice(told["orphans"])
            queue, verdict = one["queue"], one["verdict"]
            options = {"force": True} if verdict["is_quarantined"] else {}
            act = verdict["suggests"] or "requeue"
            self._order(act, f"{queue['deployment']}/{queue['id']}", one["id"], one["seen"], options)

    def _failed(self, queue: Queue) -> None:
        self._listed("retry", queue, "failed")

    def _by_id(self, queue: Queue) -> None:
        """As a script does that knows an id and has not looked: a job that has completed must not run again."""
        known = int(self._side.store.client.get(queue.key("id")) or 0)
        if known:
            self._order("retry", f"main/{queue.base}", str(self._dice.randint(max(1, known - 100), known)))

    def _active(self, queue: Queue) -> None:
        """Mostly one that a worker has, which has to be refused."""
        self._listed(self._dice.choice(("requeue", "release")), queue, "active")

    def _remove(self, queue: Queue) -> None:
        if job := self._listed("remove", queue, "waiting"):
            self.removed[queue.name].add(job)

    def _pause(self, queue: Queue) -> None:
        self._order("pause", f"main/{queue.base}")
        time.sleep(self._dice.uniform(*PAUSED))  # bench only: so long it is paused
        self._order("resume", f"main/{queue.base}")

    def _bulk(self, queue: Queue) -> None:
        act, chosen = self._dice.choice((("requeue", "orphan"), ("retry", "failed")))
        body = {"act": act, "queue": f"main/{queue.base}", "all": chosen, "reason": "at random"}
        status, _ = self._product.call("POST", "/bulk", body)
        self.came_to[f"bulk {act} {'ordered' if status == 202 else status}"] += 1

    def _listed(self, act: str, queue: Queue, state: str) -> str:
        """One job of a list, as it was shown there; its id when it was done."""
        status, told = self._product.call("GET", f"/queues/main/{queue.base}/jobs?state={state}")
        if status != 200 or not told["jobs"]:
            return ""
        job = self._dice.choice(told["jobs"])
        done = self._order(act, f"main/{queue.base}", job["id"], job["seen"])
        return job["id"] if done else ""

    def _order(
        self, act: str, queue: str, job: str = "", seen: Any = None, options: dict[str, bool] | None = None
    ) -> bool:
        body = {"act": act, "queue": queue, "reason": "at random", "options": options or {}}
        body |= {"jobs": [{"id": job} | ({"seen": seen} if seen else {})]} if job else {}
        status, told = self._product.call("POST", "/actions", body)
        came_to = told["results"][0]["outcome"] if status == 200 else str(status)
        self.came_to[f"{act} {came_to}"] += 1
        return came_to == "done"


# -- what became of the jobs


@dataclass(slots=True)
class JobAccount:
    """What became of all jobs of one side. Names of jobs as `queue:id`."""

    jobs: int = 0
    interrupted: int = 0
    again: list[float] = field(default_factory=list)  # seconds from the kill until it ran again
    never: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    overlapping: list[str] = field(default_factory=list)
    ended_twice: int = 0  # its worker was killed in the moment of the end
    ended_twice_otherwise: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, side: Side, removed: dict[str, set[str]]) -> JobAccount:
        account = cls()
        for queue in side.queues:
            places = _places(side.store, queue)
            for id, runs in _runs(side.store, queue):
                account.jobs += 1
                known = len(account.never)
                account._add(f"{queue.name}:{id}", runs, places[id], side, is_removed=id in removed[queue.name])
                if len(account.never) > known:  # one that took three workers with it waits for a person, by design
                    kills = sum(run.ended is None for run in runs)
                    reason = (side.store.client.hget(queue.key(id), "failedReason") or b"").decode()
                    account.never[-1] += f" after {kills} kills: {reason or 'no reason'}"
        return account

    def _add(self, name: str, runs: list[JobRun], places: set[str], side: Side, *, is_removed: bool) -> None:
        if not places and not is_removed:
            self.lost.append(name)
        if places & set(_OPEN):
            self.stuck.append(name)
        if "failed" in places:
            self.failed.append(name)
        for at, run in enumerate(runs):
            self._add_run(name, run, runs[at + 1 :], _kill_of(side, run), is_removed=is_removed)

    def _add_run(self, name: str, run: JobRun, later: list[JobRun], killed: int | None, *, is_removed: bool) -> None:
        if any(one.began < min(run.ended or _NEVER, killed or _NEVER) for one in later):
            self.overlapping.append(name)
        if run.ended is None and killed is not None:
            self.interrupted += 1
            if later:
                self.again.append((later[0].began - killed) / 1000)
            elif not is_removed:
                self.never.append(name)
        if run.ended is not None and any(one.ended is not None for one in later):
            if killed is not None and killed - run.ended <= JUST_ENDED_MS:
                self.ended_twice += 1
            else:
                self.ended_twice_otherwise.append(name)


_NEVER = 1 << 62


def _kill_of(side: Side, run: JobRun) -> int | None:
    """When its process was killed, though another one may have had the same number before or since."""
    return next((at for at in side.killed.get(run.process, ()) if at >= run.began), None)


def _runs(store: Store, queue: Queue) -> Iterator[tuple[str, list[JobRun]]]:
    """Of every job that was ever added."""
    last = int(store.client.get(queue.key("id")) or 0)
    for first in range(1, last + 1, 1000):
        ids = [str(number) for number in range(first, min(first + 1000, last + 1))]
        asked = store.client.pipeline(transaction=False)
        for id in ids:
            asked.lrange(queue.key(id, "logs"), 0, -1)
        yield from zip(ids, map(_parsed, asked.execute()), strict=True)


def _parsed(lines: Sequence[bytes]) -> list[JobRun]:
    """Two workers may have written between each other's lines: the end is that of the same process."""
    runs: list[JobRun] = []
    for line in lines:
        process, at, what = line.split()
        if what == b"began":
            runs.append(JobRun(int(process), int(at), None))
            continue
        place = max(number for number, run in enumerate(runs) if run.process == int(process))
        runs[place] = JobRun(runs[place].process, runs[place].began, int(at))
    return runs


def _places(store: Store, queue: Queue) -> dict[str, set[str]]:
    """In which lists each job is."""
    places: dict[str, set[str]] = defaultdict(set)
    for name in (*_LISTS, *_SETS):
        key = queue.key(name)
        ids = store.client.lrange(key, 0, -1) if name in _LISTS else store.client.zrange(key, 0, -1)
        for id in ids:
            places[id.decode()].add(name)
    return places


# -- the run


def run(*, quick: bool, minutes: float | None = None) -> Result:
    seconds = (minutes or (QUICK_MINUTES if quick else MINUTES)) * 60
    result = Result("end_to_end", f"Workers killed for {seconds / 60:g} minutes: the library alone, and with Unstall")
    result.setting = {"seconds": seconds, "lock": LOCK, "workers_a_side": PROCESSES * len(QUEUES), "seed": SEED}
    with ExitStack() as stack:
        # A Node process that starts spends most of its time compiling the same files.
        cache = stack.enter_context(tempfile.TemporaryDirectory(prefix="unstall-node-"))
        os.environ["NODE_COMPILE_CACHE"] = cache
        stack.callback(os.environ.pop, "NODE_COMPILE_CACHE")
        pairs = [_pair(stack, name) for name in LIBRARIES]
        sides = [side for pair in pairs for side in pair]
        result.setting |= {side.name: side.library.version for side in sides}
        # A store that has just started holds every scanner until each worker had the time to renew.
        old = 2 * LOCK + 2
        until(lambda: all(_uptime(side.store) > old for side in sides), 120, "the stores are old enough")
        _live(stack, result, pairs, seconds)
    return result


def _live(stack: ExitStack, result: Result, pairs: list[tuple[Side, Side]], seconds: float) -> None:
    sides = [side for pair in pairs for side in pair]
    pool = stack.enter_context(ThreadPoolExecutor(2 * len(sides)))
    operators = {side.name: RandomOperator(side, side.product) for side in sides if side.product}
    over = threading.Event()
    stack.callback(over.set)
    used, began = _used(), time.monotonic() + HIRED_WITHIN
    timetables = {alone.name: _timetable(alone.library.name, seconds) for alone, _ in pairs}
    lives = [pool.submit(side.live, timetables[side.name], began) for side in sides]
    acting = [pool.submit(one.act, over) for one in operators.values()]
    memory = _watch(sides, lives, until_then=began + seconds, then=over.set)
    for future in (*lives, *acting):
        future.result()
    driver = 100 * (_used() - used) / (time.monotonic() - began)
    result.row("this program", driver, "% of a core", "kills, jobs, acts")
    for alone, watched in pairs:
        _tell(result, alone, watched, operators[watched.name], memory[watched.name])


def _timetable(library: str, seconds: float) -> list[Kill]:
    dice, kills, at = random.Random(f"{SEED} kills {library}"), [], 0.0
    while (at := at + dice.uniform(*APART)) < seconds:
        kills.append(Kill(at, dice.randrange(PROCESSES)))
    return kills


def _watch(
    sides: Sequence[Side], lives: Sequence[Future[None]], *, until_then: float, then: Callable[[], None]
) -> dict[str, list[float]]:
    """The memory of each scheduler in MB until all is over; the operators stop with the kills."""
    sizes: dict[str, list[float]] = defaultdict(list)
    while not all(life.done() for life in lives):
        time.sleep(SAMPLE)
        if time.monotonic() >= until_then or any(life.done() and life.exception() for life in lives):
            then()
        for side in sides:
            if side.product:
                side.product.supervise()
                process = psutil.Process(side.product.schedulers[0].pid)
                sizes[side.name].append(process.memory_info().rss / (1 << 20))
    return sizes


def _pair(stack: ExitStack, name: str) -> tuple[Side, Side]:
    return _side(stack, name, is_watched=False), _side(stack, name, is_watched=True)


def _side(stack: ExitStack, name: str, *, is_watched: bool) -> Side:
    store, fleet = stack.enter_context(Store("valkey")), Fleet()
    stack.callback(fleet.stop)
    library = fleet[name]
    queues = [library.queue(store, queue) for queue in QUEUES]
    for queue in queues:
        queue.add("first", {"ms": JOB_MS[0]})  # so that there is something to be found
    product = None
    if is_watched:
        product = stack.enter_context(installed(store.url, queues=len(queues), settings=_ARMED))
    return Side(library, store, product, queues)


def _uptime(store: Store) -> int:
    return int(store.client.info("server")["uptime_in_seconds"])


def _used() -> float:
    times = psutil.Process().cpu_times()
    return times.user + times.system


# -- what is told


def _tell(result: Result, alone: Side, watched: Side, operator: RandomOperator, memory: list[float]) -> None:
    assert watched.product is not None
    name = watched.name
    theirs, ours = JobAccount.of(alone, defaultdict(set)), JobAccount.of(watched, operator.removed)

    def row(what: str, of: Callable[[JobAccount], float], unit: str = "", note: str = "") -> None:
        beside = f"the library alone: {of(theirs):,.0f}"
        result.row(f"{name}: {what}", of(ours), unit, f"{beside}; {note}" if note else beside)

    kills = f"{len(watched.late)} processes killed, {_behind(watched)} and {_behind(alone)} of them late"
    row("jobs", lambda one: one.jobs, note=kills)
    row("interrupted by a kill", lambda one: one.interrupted)
    for side, account in (("", ours), (", the library alone", theirs)):
        if account.again:
            result.row(f"{name}: kill → runs again{side}", median(account.again), "s p50", _spread(account.again))
    row("never ran again", lambda one: len(one.never))
    row("failed at the end", lambda one: len(one.failed))
    row("lost, in no list", lambda one: len(one.lost))
    row("stuck at the end", lambda one: len(one.stuck))
    row("started while an earlier run was alive", lambda one: len(one.overlapping))
    row("completed twice, killed within 400 ms of the end", lambda one: one.ended_twice)
    row("completed twice for another reason", lambda one: len(one.ended_twice_otherwise))
    acts = ", ".join(f"{count} {what}" for what, count in sorted(operator.came_to.items()))
    result.row(f"{name}: acts of the operator", sum(operator.came_to.values()), "", acts)
    by_scanners = "SELECT count(*) FROM recovery_auditentry WHERE phase = 'intent' AND actor_kind = 'scanner'"
    result.row(f"{name}: acts of scanners", watched.product.ask(by_scanners)[0][0], "")
    result.row(f"{name}: schedulers that gave up and were started again", watched.product.gave_up, "")
    _judge(result, name, ours, watched)
    third = max(1, len(memory) // 3)
    first, last = median(memory[:third]), median(memory[-third:])
    result.row(f"{name}: memory of the scheduler", last, "MB", f"in the last third; in the first {first:.0f} MB")
    result.goal(f"{name}: memory, last third against first, ≤ {MEMORY:g}", last / first, most=MEMORY)


def _judge(result: Result, name: str, ours: JobAccount, watched: Side) -> None:
    assert watched.product is not None
    none = {
        "never ran again": ours.never,
        "lost": ours.lost,
        "stuck at the end": ours.stuck,
        "started while an earlier run was alive": ours.overlapping,
        "completed twice for another reason": ours.ended_twice_otherwise,
    }
    for what, jobs in none.items():
        result.goal(f"{name}: {what}{f' ({_some(jobs)})' if jobs else ''}", len(jobs), most=0)
    result.goal(f"{name}: interrupted (else nothing was tried)", ours.interrupted, least=1)
    if ours.again:
        slowest = percentile(ours.again, 0.99)
        result.goal(f"{name}: kill → runs again, p99 ≤ {AGAIN_P99:g} s", slowest, most=AGAIN_P99)
    broken = watched.product.broken_links()
    result.goal(f"{name}: audit chain broken{f' ({broken})' if broken else ''}", int(bool(broken)), most=0)


def _some(jobs: Sequence[str]) -> str:
    return ", ".join(jobs[:5]) + (", …" if len(jobs) > 5 else "")


def _behind(side: Side) -> int:
    return sum(late > LATE for late in side.late)


def _spread(seconds: Sequence[float]) -> str:
    shares = ", ".join(f"p{share:.0%} {percentile(seconds, share):.1f} s".replace("%", "") for share in (0.9, 0.99))
    return f"{shares}, max {max(seconds):.1f} s, {len(seconds)} jobs"
