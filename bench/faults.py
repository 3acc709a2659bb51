"""Faults in the midst of a bulk run: what becomes of each job, how long the run rests, and what people read meanwhile.

Each fault has stores, a web process and schedulers of its own. 10,000 orphans of the real BullMQ are ordered back to
wait through the API; when a part of them is done, the fault comes, and goes again. After the end of the run every job
is looked at: it is in wait once, its stalled counter is 1, the run and the audit say of it what happened, and the
audit's chain is whole. Pages and probes are read twice a second all the while. A run that has ended before its fault
came, or a sentence that should have been there and was not, counts as missed.

    python -m bench faults                        # all, some ten minutes on two idle cores
    python -m bench faults --only "state store"   # those whose name has these words
    python -m bench faults --quick                # fewer orphans and shorter faults: to see that it works

It needs what `make setup-test` installs (Node with the real BullMQ), PostgreSQL for two faults, and root for a disk
that is full; what cannot be tried is left out. Nobody else should use the machine: the seconds are told as they are.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import redis

from bench import stage
from bench.measure import Observation, Result
from bench.product import AS_INSTALLED, Product, installed, wait_until_watched
from recovery.errors import UnstallError
from recovery.reads.queues import snapshot_store
from recovery.stores.redis.cluster_slots import slot
from recovery.stores.state import state_keys
from tests.support.processes.fleet import PREFIX, Fleet, Queue
from tests.support.processes.schedulers import DATABASE, WallClock, script
from tests.support.stores import disks, postgres
from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.waiting import until

LIBRARY = "bullmq6"
JOBS = 10_000
QUICK_JOBS = 4_000
BEGUN = 0.05  # the part of a run that is done when the fault comes
AWAY, QUICK_AWAY = 8.0, 4.0  # seconds that most faults last
STOPPED, QUICK_STOPPED = 30.0, 15.0  # seconds that a leader is stopped
BUSY, QUICK_BUSY = 12.0, 8.0  # seconds; Redis says BUSY after five
FULL = 20.0  # seconds that a state store is full
JUMPS = (-3_600, 3_600, -120, 0)  # seconds that a wall clock is off, one after the other
EACH_JUMP = 6.0  # seconds
LOST_WITH = 100  # jobs at most whose outcome is unknown: two scripts of 50 are on their way at once
LEADER_LOST = 12.0  # seconds: a run goes on ≤ 10 s after its leader died, and a look more
GOES_ON = 15.0  # seconds after the fault is gone: a run that is held is tried again after longer and longer
STARTS = 25.0  # seconds until a scheduler that is started anew leads
TAKES_OVER = 30.0  # seconds behind the end of the console that acts
SNAPSHOTS = 7.0  # seconds between two at most while a clock jumps: 5, and the interval of 2
ARMED_ORPHANS = 200
DISK_MB = 64  # more than a run of 10,000 writes
ARMED = """
[thresholds]
stalled_interval = 1
[[policies]]
queue = "main/bull:armed"
orphan_watch = { mode = "enabled" }
"""
PATIENCE = 300.0
TOLD = 3  # sentences of a fault that the table shows; the file has all
_OTHERS = ("Scanners hold on",)  # true of every store that is young, and not about the fault
_RUN = "SELECT status, trouble, total, done, refused, missing, unchanged, unknown FROM recovery_bulkrun WHERE id = ?"
_ITEMS = "SELECT job, outcome FROM recovery_bulkitem WHERE run_id = ?"
_CLAIMED = (
    "SELECT count(*), count(DISTINCT job) FROM recovery_auditjob JOIN recovery_auditentry ON number = entry_id"
    " WHERE act = 'requeue' AND outcome = 'done' AND actor_kind = 'token'"
)
_ACCESS = ("unstall", "secret")


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is, as the database has it."""

    status: str
    trouble: str
    total: int
    outcomes: dict[str, int]

    @property
    def settled(self) -> int:
        return sum(self.outcomes.values())


@dataclass(slots=True)
class RunUnderFault:
    """A queue of orphans, a product that puts them back, and what a fault is made of."""

    product: Product
    queue: Queue
    count: int
    quick: bool
    place: Any  # the Store, Sentinel or Cluster that has the queue
    keys: Callable[[], redis.Redis]  # a client of the server that has them now
    clock: WallClock
    server: postgres.Postgres | None = None
    disk: Path | None = None
    sampler: FaultSampler | None = None
    run: int = 0

    def progress(self) -> Progress:
        ((status, trouble, total, *outcomes),) = self.product.ask(_RUN, self.run)
        names = ("done", "refused", "missing", "unchanged", "unknown")
        return Progress(status, trouble, total, dict(zip(names, outcomes, strict=True)))

    def lasts(self, seconds: float, quick: float) -> None:
        time.sleep(quick if self.quick else seconds)  # bench only: so long is the fault

    @property
    def away(self) -> float:
        return QUICK_AWAY if self.quick else AWAY

    @property
    def client(self) -> redis.Redis:
        return self.keys()


# Makes the fault and ends it; answers what was wrong meanwhile.
Injection = Callable[[RunUnderFault], Sequence[str] | None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`rests`: seconds at most that the run stands still; `says`: what a page, a probe or the run itself has to say.

    Several schedulers run as if each had a machine of its own, because on the same one a death is seen at once.
    """

    name: str
    expected: str
    inject: Injection
    rests: Callable[[RunUnderFault], float]
    says: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    schedulers: int = 1
    is_armed: bool = False
    loses_all: bool = False  # what was not done is gone with its store
    place: str = "store"  # store, sentinel, cluster
    database: str = ""
    has_own_user: bool = False
    shifts_clock: bool = False
    has_small_disk: bool = False  # for the file of SQLite


# -- what people read


class FaultSampler:
    """Reads page, probes and progress all the while, in a thread of its own. Every sentence is kept once."""

    def __init__(self, scene: RunUnderFault) -> None:
        self._scene = scene
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._read, self._count)]
        self.said: dict[str, float] = {}  # sentence → when it was first read
        self.steps: list[tuple[float, int]] = []  # when, and how many jobs were settled
        self.snapshots: list[float] = []
        self.was_unhealthy: list[str] = []

    def __enter__(self) -> FaultSampler:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def rest_after(self, moment: float) -> float:
        """The longest time without a step since then."""
        moved = [moment]
        last = -1
        for at, settled in self.steps:
            if settled != last and at >= moment:
                moved.append(at)
            last = settled
        return max((after - before for before, after in pairwise(moved)), default=0.0)

    def longest_without_snapshot(self, moment: float) -> float:
        times = [at for at in self.snapshots if at >= moment]
        return max((after - before for before, after in pairwise(times)), default=float("inf"))

    def since(self, moment: float) -> list[str]:
        return [said for said, at in self.said.items() if at >= moment and not said.startswith(_OTHERS)]

    def _count(self) -> None:
        number = 0
        while not self._over.wait(0.1):
            with suppress(sqlite3.Error, psycopg.Error):
                if self._scene.run:
                    self.steps.append((time.monotonic(), self._scene.progress().settled))
            with suppress(UnstallError, redis.RedisError):
                found = snapshot_store.fetch(self._scene.product.state.client)
                if found and found.number != number:
                    number = found.number
                    self.snapshots.append(time.monotonic())

    def _read(self) -> None:
        while not self._over.wait(0.5):
            for said in self._sentences():
                self.said.setdefault(said, time.monotonic())

    def _sentences(self) -> Iterator[str]:
        product = self._scene.product
        with suppress(OSError):
            yield from map(_plain, product.notices())
        with suppress(OSError, ValueError):
            told = json.loads(product.web.get("/readyz").body)
            yield from (f"/readyz: {_plain(reason)}" for reason in (*told["reasons"], *told["degraded"]))
        try:
            healthy = product.web.get("/healthz", seconds=5)
            if healthy.status != 200:
                self.was_unhealthy.append(f"/healthz answered {healthy.status}")
        except OSError as error:
            self.was_unhealthy.append(f"/healthz: {error}")
        with suppress(sqlite3.Error, psycopg.Error):
            if self._scene.run and (trouble := self._scene.progress().trouble):
                yield f"run: {_plain(trouble)}"


def _plain(said: str) -> str:
    """The same sentence at another moment is the same one."""
    return re.sub(r"\d+(\.\d+)?( ?(ms|s|min|h))\b", "…", said)


# -- the faults


def _lasting(seconds: float = GOES_ON) -> Callable[[RunUnderFault], float]:
    """The fault's own time, and so much more."""
    return lambda scene: scene.away + seconds


def _killed(scene: RunUnderFault) -> None:
    _leader(scene).send(signal.SIGKILL)


def _killed_alone(scene: RunUnderFault) -> None:
    _killed(scene)
    scene.product.schedule()


def _stopped(scene: RunUnderFault) -> None:
    leader = _leader(scene)
    with _nobody_writes(scene):
        leader.stop()
    scene.lasts(STOPPED, QUICK_STOPPED)
    leader.send(signal.SIGCONT)


def _leader(scene: RunUnderFault) -> Any:
    leader = scene.product.leader
    assert leader is not None
    return leader


@contextmanager
def _nobody_writes(scene: RunUnderFault) -> Iterator[None]:
    """A process that is stopped with SQLite's one lock in its hands holds everybody up; that is not what is tried."""
    with closing(sqlite3.connect(scene.product.web.directory / DATABASE, timeout=30, isolation_level=None)) as ours:
        ours.execute("BEGIN IMMEDIATE")
        yield
        ours.execute("ROLLBACK")


def _state_killed(scene: RunUnderFault) -> None:
    scene.product.state.kill()
    scene.lasts(AWAY, QUICK_AWAY)
    scene.product.state.start()


def _state_flushed(scene: RunUnderFault) -> None:
    scene.product.state.flush()


def _state_full(scene: RunUnderFault) -> list[str]:
    """Another queue loses its jobs, and its armed orphan-watch has to put them back while nothing is published."""
    store, armed = scene.product.state.client, _armed_queue(scene.queue, scene.place)
    store.config_set("maxmemory", 1)
    stage.lose(scene.place, armed, ARMED_ORPHANS)
    began = time.monotonic()
    with suppress(AssertionError):
        until(lambda: scene.client.llen(armed.key("wait")) == ARMED_ORPHANS, FULL, "armed recovery goes on")
    left = ARMED_ORPHANS - int(scene.client.llen(armed.key("wait")))
    time.sleep(max(0.0, FULL / (2 if scene.quick else 1) - (time.monotonic() - began)))  # bench only
    store.config_set("maxmemory", 0)
    wrong = [f"armed recovery left {left} of {ARMED_ORPHANS}"] if left else []
    assert scene.sampler is not None
    told = [said for said in scene.sampler.said if "Start it with: manage.py scheduler" in said]
    return [*wrong, *(f"it was said: {said}" for said in told)]


def _armed_queue(queue: Queue, place: Store) -> Queue:
    return queue.library.queue(place, "armed")


def _queues_killed(scene: RunUnderFault) -> None:
    scene.place.kill()
    scene.lasts(AWAY, QUICK_AWAY)
    scene.place.start()


def _busy(scene: RunUnderFault) -> None:
    """A script of somebody else that never ends, until an operator kills it."""
    with scene.place.connect(socket_timeout=PATIENCE) as theirs, scene.place.connect() as operators:
        script = threading.Thread(target=_spin, args=(theirs,))
        script.start()
        scene.lasts(BUSY, QUICK_BUSY)
        operators.script_kill()
        script.join()


def _spin(client: redis.Redis) -> None:
    with suppress(redis.RedisError):
        client.eval("while true do end", 0)


def _out_of_memory(scene: RunUnderFault) -> None:
    scene.client.config_set("maxmemory", 1)
    scene.lasts(AWAY, QUICK_AWAY)
    scene.client.config_set("maxmemory", 0)


def _demoted(scene: RunUnderFault) -> None:
    scene.client.replicaof("127.0.0.1", 1)
    scene.lasts(AWAY, QUICK_AWAY)
    scene.client.execute_command("REPLICAOF", "NO", "ONE")


def _no_reads(scene: RunUnderFault) -> list[str]:
    scene.client.execute_command("ACL", "SETUSER", _ACCESS[0], "-@read")
    scene.lasts(AWAY, QUICK_AWAY)
    status, told = scene.product.call("GET", "/queues")
    counts = [row["counts"] for row in told["queues"] if not row["error"]] if status == 200 else []
    wrong = [f"the API calls {counts[0]} current" for _ in counts[:1]]
    zero = [row for row in told["queues"] if row["counts"]["active"] == 0 and row["counts"]["waiting"] == 0]
    scene.client.execute_command("ACL", "SETUSER", _ACCESS[0], "+@all")
    return [*wrong, *("0 jobs are told where nothing could be read" for _ in zero)]


def _user_off(scene: RunUnderFault) -> None:
    scene.client.execute_command("ACL", "SETUSER", _ACCESS[0], "off")
    scene.client.execute_command("CLIENT", "KILL", "USER", _ACCESS[0])
    scene.lasts(AWAY, QUICK_AWAY)
    scene.client.execute_command("ACL", "SETUSER", _ACCESS[0], "on")


def _clock_jumps(scene: RunUnderFault) -> list[str]:
    assert scene.sampler is not None
    began = time.monotonic()
    for seconds in JUMPS:
        scene.clock.jump(seconds)
        time.sleep(EACH_JUMP)  # bench only: so long it stays there
    pause = scene.sampler.longest_without_snapshot(began)
    taken = snapshot_store.fetch(scene.product.state.client)
    off = abs(taken.taken_at / 1000 - time.time()) if taken else float("inf")
    wrong = [f"{pause:.1f} s without a snapshot"] if pause > SNAPSHOTS else []
    return [*wrong, *([f"the newest snapshot is {off:.0f} s off"] if off > 2 * SNAPSHOTS else [])]


def _postgres_quits(scene: RunUnderFault) -> None:
    assert scene.server is not None
    scene.server.stop()
    scene.lasts(4.0, 4.0)
    scene.server.start()


def _database_read_only(scene: RunUnderFault) -> None:
    assert scene.server is not None
    with psycopg.connect(scene.server.url, autocommit=True) as admin:
        admin.execute("SET default_transaction_read_only = off")
        admin.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        admin.execute("SELECT pg_reload_conf()")
        scene.lasts(AWAY, QUICK_AWAY)
        admin.execute("ALTER SYSTEM RESET default_transaction_read_only")
        admin.execute("SELECT pg_reload_conf()")


def _disk_full(scene: RunUnderFault) -> None:
    assert scene.disk is not None
    filler = disks.fill(scene.disk)
    scene.lasts(AWAY, QUICK_AWAY)
    filler.unlink()


def _master_killed(scene: RunUnderFault) -> None:
    old = scene.place.master
    old.kill()
    until(lambda: scene.place.master is not old, 60, "Sentinel names another master")


def _slot_moves(scene: RunUnderFault) -> None:
    number = slot(scene.queue.base.encode())
    source = scene.place.owner(number)
    target = next(node for node in scene.place.nodes if node is not source)
    scene.place.move_slot(number, source, target, halfway=lambda: scene.lasts(4.0, 2.0))


_UP = {"appendonly": "yes", "appendfsync": "everysec"}
_ONCE = "each job once"
FAULTS = (
    Fault("leader killed -9, standby on another machine", _ONCE, _killed, lambda _: LEADER_LOST, schedulers=2),
    Fault(
        "leader killed -9, none there, started again",
        _ONCE,
        _killed_alone,
        lambda _: STARTS,
    ),
    Fault(
        "leader stopped and continued, standby on another machine", _ONCE, _stopped, lambda _: LEADER_LOST, schedulers=2
    ),
    Fault(
        "leader stopped and continued, none there",
        _ONCE,
        _stopped,
        lambda scene: (QUICK_STOPPED if scene.quick else STOPPED) + LEADER_LOST,
        says=("scheduler|snapshot",),
    ),
    Fault(
        "state store killed -9, back later",
        f"{_ONCE}; said",
        _state_killed,
        _lasting(),
        says=("state store",),
    ),
    Fault("state store FLUSHALL", _ONCE, _state_flushed, lambda _: GOES_ON),
    Fault(
        "state store full (maxmemory, noeviction)",
        f"{_ONCE}; armed recovery goes on; said as that",
        _state_full,
        lambda _: GOES_ON,
        says=("takes no writes",),
        is_armed=True,
    ),
    Fault(
        "queue Redis killed -9, AOF everysec, back later",
        f"{_ONCE}; held and said",
        _queues_killed,
        _lasting(),
        says=("does not answer|not reachable|refused",),
        options=_UP,
    ),
    Fault(
        "queue Redis killed -9, no persistence, back later",
        "what was not done is gone with it, nothing is invented",
        _queues_killed,
        _lasting(),
        says=("does not answer|not reachable|refused",),
        loses_all=True,
    ),
    Fault(
        "queue Redis -BUSY",
        f"{_ONCE}; said as that",
        _busy,
        lambda scene: (QUICK_BUSY if scene.quick else BUSY) + GOES_ON,
        says=("busy with a long script",),
    ),
    Fault(
        "queue Redis -OOM (maxmemory, noeviction)",
        f"{_ONCE}; held with Redis' own words",
        _out_of_memory,
        _lasting(),
        says=("OOM|maxmemory|memory",),
    ),
    Fault(
        "queue Redis demoted to a read-only replica",
        f"{_ONCE}; held and said",
        _demoted,
        _lasting(),
        says=("replica|read.?only",),
    ),
    Fault(
        "queue Redis: ACL without reads",
        f"{_ONCE}; unknown and not 0; said",
        _no_reads,
        _lasting(),
        says=("NOPERM|may not|not allowed|permission",),
        has_own_user=True,
    ),
    Fault(
        "queue Redis: user off and on again",
        f"{_ONCE}; said",
        _user_off,
        _lasting(),
        says=("WRONGPASS|NOAUTH|password|user|refuse",),
        has_own_user=True,
    ),
    Fault(
        "wall clock of the scheduler's host back and ahead",
        f"{_ONCE}; snapshots go on, with the right time",
        _clock_jumps,
        lambda _: SNAPSHOTS,
        shifts_clock=True,
    ),
    Fault(
        "PostgreSQL quits, back after 4 s, two schedulers",
        f"{_ONCE}; said",
        _postgres_quits,
        lambda _: 4.0 + GOES_ON,
        says=("database",),
        schedulers=2,
        database="postgresql",
    ),
    Fault(
        "PostgreSQL read-only",
        f"{_ONCE}, none without its entry in the audit; said, and not ready",
        _database_read_only,
        _lasting(),
        says=("/readyz: database",),
        database="postgresql",
    ),
    Fault(
        "disk of SQLite full",
        f"{_ONCE}, none without its entry in the audit; said, and not ready",
        _disk_full,
        _lasting(),
        says=("/readyz: database",),
        has_small_disk=True,
    ),
    Fault(
        "Sentinel fail-over, the master killed -9",
        f"{_ONCE}; goes on at the new master",
        _master_killed,
        lambda _: 10.0 + GOES_ON,
        place="sentinel",
    ),
    Fault(
        "Cluster: the queue's slot migrates",
        f"{_ONCE}; goes on at the new node",
        _slot_moves,
        lambda _: 6.0 + GOES_ON,
        place="cluster",
    ),
)
TWO_CONSOLES = "two consoles on one Redis, the acting one killed -9"
ONE_ACTS = f"{_ONCE}; one acts, the other says so and takes over"


def run(*, quick: bool, only: str = "") -> Result:
    """One row a fault. `only`: those whose name has these words."""
    count = QUICK_JOBS if quick else JOBS
    result = Result("faults", f"Faults in the midst of a bulk run of {count:,} orphans")
    result.setting = {"orphans": count, "library": LIBRARY, "said": {}}
    for fault in FAULTS:
        if only not in fault.name or _lacks(fault):
            continue
        print(f"  … {fault.name}", file=sys.stderr, flush=True)
        try:
            with ExitStack() as stack:
                observation, said = _tried(stack, fault, count, quick=quick)
        except _FAILURES as error:  # the others are tried all the same
            observation, said = _failed(fault.name, fault.expected, error), []
        _keep(result, observation)
        result.setting["said"][fault.name] = said
    if only in TWO_CONSOLES:
        print(f"  … {TWO_CONSOLES}", file=sys.stderr, flush=True)
        try:
            with ExitStack() as stack:
                observation = _two_consoles(stack, count)
        except _FAILURES as error:
            observation = _failed(TWO_CONSOLES, ONE_ACTS, error)
        _keep(result, observation)
    return result


def _lacks(fault: Fault) -> bool:
    """This machine cannot try it: PostgreSQL is not installed, or only root may mount a small disk."""
    has_no_database = bool(fault.database) and postgres.programs() is None
    return has_no_database or (fault.has_small_disk and os.geteuid() != 0)


def _keep(result: Result, one: Observation) -> None:
    """Shown at once: a run of half an hour may be ended before its table is printed."""
    result.observations.append(one)
    print(f"    {'held' if one.held else 'MISSED'}: {one.seen}", file=sys.stderr, flush=True)


_FAILURES = (AssertionError, RuntimeError, OSError, redis.RedisError, sqlite3.Error, psycopg.Error)


def _failed(name: str, expected: str, error: Exception) -> Observation:
    return Observation(name, expected, f"it came to no end: {error!r}".replace("|", "/"), held=False)


def _tried(stack: ExitStack, fault: Fault, count: int, *, quick: bool) -> tuple[Observation, list[str]]:
    scene = _scene(stack, fault, count, quick=quick)
    with FaultSampler(scene) as sampler:
        scene.sampler = sampler
        scene.run = scene.product.order("requeue", "orphan", scene.queue)
        scene.product.until(lambda: scene.progress().settled >= BEGUN * count, PATIENCE, "the run has begun")
        began, before = time.monotonic(), scene.progress()
        wrong = [] if before.status in ("gathering", "running") else [f"the run was {before.status} before the fault"]
        wrong += fault.inject(scene) or ()
        scene.product.until(lambda: _ended(scene), PATIENCE, "the run ends")
        ended = time.monotonic()
        time.sleep(1.0)  # bench only: the last steps are counted
    rest, said = sampler.rest_after(began), sampler.since(began)
    if rest > (most := fault.rests(scene)):
        wrong.append(f"it stood still for {rest:.1f} s, of {most:g} s at most")
    wrong += [f"nothing said {words!r}" for words in fault.says if not re.search(words, " ".join(said), re.IGNORECASE)]
    wrong += sampler.was_unhealthy[:1]
    seen, faults = _judged(scene, fault)
    wrong += faults
    told = f"said: {' · '.join(said[:TOLD])}" if said else "nothing said"
    again = f"; {scene.product.gave_up} schedulers gave up and were started again" if scene.product.gave_up else ""
    text = f"{seen}; stood still for {rest:.1f} s of {ended - began:.1f} s{again}; {told}"
    if wrong:
        text = f"{'; '.join(wrong)}. {text}"
    return Observation(fault.name, fault.expected, text.replace("|", "/"), not wrong), said


def _ended(scene: RunUnderFault) -> bool:
    try:
        found = scene.progress()
    except (sqlite3.Error, psycopg.Error):
        return False
    if found.status in ("failed", "stopped"):
        raise RuntimeError(f"the run is {found.status}: {found.trouble}")
    return found.status == "ended"


# -- what stands there before


def _scene(stack: ExitStack, fault: Fault, count: int, *, quick: bool) -> RunUnderFault:
    fleet = Fleet()
    place, keys = _place(stack, fault)
    stack.callback(fleet.stop)
    name = "{mail}" if fault.place == "cluster" else "mail"
    queue = fleet[LIBRARY].queue(place, name)
    server = stack.enter_context(postgres.Postgres()) if fault.database else None
    stage.orphans(_filled(place, queue), queue, count)
    if fault.is_armed:
        _armed_queue(queue, place).add_many(ARMED_ORPHANS)
    url = place.url
    if fault.has_own_user:
        user, password = _ACCESS
        place.client.execute_command("ACL", "SETUSER", user, "on", f">{password}", "~*", "&*", "+@all")
        url = url.replace("redis://", f"redis://{user}:{password}@")
    disk = stack.enter_context(disks.small_disk(DISK_MB)) if fault.has_small_disk else None
    settings, database = ARMED if fault.is_armed else "", server.url if server else ""
    product = stack.enter_context(installed(url, settings=settings, database=database, disk=disk, schedulers=0))
    clock = WallClock(product.web.directory)
    for number in range(fault.schedulers):
        arguments = script(place=f"machine-{number}") if fault.schedulers > 1 else AS_INSTALLED
        product.schedule(clock.script() if fault.shifts_clock else arguments, clock.environ)
    wait_until_watched(product, 2 if fault.is_armed else 1)
    if fault.is_armed:  # a Redis that is young holds every scanner for a minute
        product.until(lambda: not product.state.client.exists(state_keys.SCANNER_HOLDS), 120, "nothing is paused")
    return RunUnderFault(product, queue, count, quick, place, keys, clock, server, disk)


def _place(stack: ExitStack, fault: Fault) -> tuple[Any, Callable[[], redis.Redis]]:
    if fault.place == "sentinel":
        sentinel = Sentinel()
        stack.callback(sentinel.close)
        sentinel.start()
        return sentinel, lambda: sentinel.client
    if fault.place == "cluster":
        cluster = Cluster()
        stack.callback(cluster.close)
        cluster.start()
        number = slot(f"{PREFIX}:{{mail}}".encode())
        return cluster, lambda: cluster.owner(number).client
    store = stack.enter_context(Store("valkey", options=fault.options))
    return store, lambda: store.client


def _filled(place: Any, queue: Queue) -> Store:
    """The server whose scripts make orphans."""
    if isinstance(place, Cluster):
        return place.owner(slot(queue.base.encode()))
    return place.master if isinstance(place, Sentinel) else place


# -- what became of the jobs


def _judged(scene: RunUnderFault, fault: Fault) -> tuple[str, list[str]]:
    """What is seen, in short; and what is wrong with it."""
    found = scene.progress()
    outcomes = dict(scene.product.ask(_ITEMS, scene.run))
    total = found.total if fault.loses_all else scene.count
    wrong = [f"{found.settled} of {total} are settled"] if not found.settled == found.total == total else []
    if found.outcomes["unknown"] > LOST_WITH:
        wrong.append(f"{found.outcomes['unknown']} unknown")
    wrong += _places(scene.client, scene.queue, scene.count, outcomes, loses_all=fault.loses_all)
    claimed, distinct = scene.product.ask(_CLAIMED)[0]
    if not distinct == claimed == found.outcomes["done"]:
        wrong.append(f"the audit has {claimed} done, of {distinct} jobs, and the run {found.outcomes['done']}")
    if broken := scene.product.broken_links():
        wrong.append(f"the audit: {broken}")
    return _counted(found.outcomes), wrong


def _counted(outcomes: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {outcome}" for outcome, number in outcomes.items() if number)


def _places(
    client: redis.Redis, queue: Queue, count: int, outcomes: Mapping[str, str], *, loses_all: bool = False
) -> Iterator[str]:
    """What is wrong with where the jobs are. `outcomes`: what is said of each; "done" or "unknown" may be in wait."""
    wait = Counter(id.decode() for id in client.lrange(queue.key("wait"), 0, -1))
    active = Counter(id.decode() for id in client.lrange(queue.key("active"), 0, -1))
    if loses_all:
        jobs = [key for key in client.scan_iter(f"{queue.base}:*", count=1000) if key.rpartition(b":")[2].isdigit()]
        if wait or active or jobs:
            yield f"{len(jobs)} jobs were invented"
        return
    ids = [str(number) for number in range(1, count + 1)]
    asked = client.pipeline(transaction=False)
    for id in ids:
        asked.hget(queue.key(id), "stc")
    stalls = {id: int(stalled or 0) for id, stalled in zip(ids, asked.execute(), strict=True)}
    groups = {
        "are there twice": [id for id in ids if wait[id] + active[id] > 1],
        "are in no list": [id for id in ids if wait[id] + active[id] == 0],
        "are not put back": [id for id in ids if active[id] and outcomes.get(id) != "unknown"],
        "are put back and not said to be": [id for id in ids if wait[id] and outcomes.get(id) not in _MAY_BE_BACK],
        "have another stalled counter than their runs": [id for id in ids if stalls[id] != wait[id]],
    }
    yield from (f"{len(found):,} jobs {what}" for what, found in groups.items() if found)


_MAY_BE_BACK = ("done", "unknown")


# -- two consoles


def _two_consoles(stack: ExitStack, count: int) -> Observation:
    """Both are ordered to do the same. The one that acts is killed, the other goes on, and the first comes back."""
    store = stack.enter_context(Store("valkey"))
    fleet = Fleet()
    stack.callback(fleet.stop)
    queue = fleet[LIBRARY].queue(store, "mail")
    stage.orphans(store, queue, count)
    first, second = (stack.enter_context(installed(store.url)) for _ in range(2))
    scenes = [
        RunUnderFault(product, queue, count, False, store, lambda: store.client, WallClock(product.web.directory))
        for product in (first, second)
    ]
    ours, theirs = scenes
    with FaultSampler(theirs) as sampler:
        theirs.sampler = sampler
        for scene in scenes:
            scene.run = scene.product.order("requeue", "orphan", queue)
            first.until(lambda: ours.progress().settled >= BEGUN * count, PATIENCE, "the first run has begun")
        before = ours.progress()
        wrong = [] if before.status in ("gathering", "running") else [f"the first run was {before.status} already"]
        _killed(ours)
        killed = time.monotonic()
        second.until(lambda: theirs.progress().settled, PATIENCE, "the second one goes on")
        taken_over = time.monotonic() - killed
        second.until(lambda: _ended(theirs), PATIENCE, "the second run ends")
        first.schedule()
        said = sampler.since(0.0)
    first.until(lambda: _ended(ours) or _WAITS in ours.progress().trouble, PATIENCE, "the first ends, or says why not")
    if taken_over > TAKES_OVER:
        wrong.append(f"the second one took over after {taken_over:.1f} s")
    if not any(_WAITS in one for one in said):
        wrong.append("the second one did not say that another console acts")
    wrong += _shared(scenes)
    seen = " and ".join(_counted(scene.progress().outcomes) for scene in scenes)
    text = f"{seen}; taken over after {taken_over:.1f} s; said: {' · '.join(said[:TOLD])}"
    return Observation(TWO_CONSOLES, ONE_ACTS, "; ".join([*wrong, text]).replace("|", "/"), not wrong)


_WAITS = "Another console acts"


def _shared(scenes: Sequence[RunUnderFault]) -> Iterator[str]:
    """What is wrong with what both did together. A job that both have was done by one of them."""
    ours, theirs = (dict(scene.product.ask(_ITEMS, scene.run)) for scene in scenes)
    both = [id for id in ours if ours[id] == theirs.get(id) == "done"]
    if both:
        yield f"{len(both)} jobs were done by both"
    outcomes = {id: _better(ours.get(id, ""), theirs.get(id, "")) for id in {*ours, *theirs}}
    yield from _places(scenes[0].client, scenes[0].queue, scenes[0].count, outcomes)
    yield from (f"the audit: {broken}" for scene in scenes if (broken := scene.product.broken_links()))


def _better(*said: str) -> str:
    """Of a job that both tell of, what says that it was put back; one that was cut off has no word yet."""
    return next((outcome for outcome in _MAY_BE_BACK if outcome in said), "unknown" if "" in said else said[0])
