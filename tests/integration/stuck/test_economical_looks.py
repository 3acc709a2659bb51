"""The look that asks a lock only when a renewal is due finds what a look finds that asks every lock, in the same look.

Histories of a queue are written into a real store step by step: locks that are renewed, that run out, that are deleted,
jobs that end and are taken anew, a worker that goes. A lock lasts ten minutes and a step a sixth of that, so a busy
machine changes nothing: the time that a look takes is nothing beside it.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.types import VerdictKind
from recovery.scanners.orphan_watch import active_job_reader, active_jobs, queue_state
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, WatchBench

pytestmark = pytest.mark.django_db(transaction=True)

LOCK, STEP, UNIT = 600_000, 100_000, 20_000  # ms
JOBS, STEPS = 24, 9
REF = QueueRef("main", "bull:looks")
ALL = 1 << 30


@dataclass(slots=True)
class Held:
    """An active job. `phase`: its lock is renewed whenever the time is that much beyond a half of its length."""

    worker: str
    phase: int
    taken: int
    dead_since: int | None = None
    end: int | None = None

    def ends(self, now: int) -> int | None:
        """When its lock ends, as it is then; None: it has none."""
        if self.end is not None:
            return self.end if self.end > now else None
        until = now if self.dead_since is None else self.dead_since
        end = max(self.taken, until - (until - self.phase) % (LOCK // 2)) + LOCK
        return end if end > now else None


@dataclass(slots=True)
class World:
    random: Random
    store: redis.Redis
    now: int
    jobs: dict[str, Held] = field(default_factory=dict)  # the oldest first
    number: int = 0
    b_is_here: bool = True

    def take(self, id: str = "") -> None:
        self.number += 1
        worker = self.random.choice("ab" if self.b_is_here else "a")
        # Ends stand half a unit beside every moment at which a look may judge them otherwise.
        phase = self.random.randrange(LOCK // 2 // UNIT) * UNIT + UNIT // 2
        self.jobs.pop(id, None)
        self.jobs[id or f"job-{self.number}"] = Held(worker, phase, self.now - UNIT // 2)

    def step(self) -> None:
        self.now += STEP
        for id in list(self.jobs):
            job, event = self.jobs[id], self.random.random()
            if event < 0.06:
                del self.jobs[id]
            elif event < 0.12:
                self.take(id)
            elif event < 0.18:
                job.dead_since = job.dead_since or self.now - STEP // 2
            elif event < 0.21:
                job.end = self.now - 1
        for _ in range(self.random.choice((0, 0, 1, 3))):
            self.take()
        if self.random.random() < 0.2:  # one after the other was given back and taken again: the list tells nothing
            for id in list(self.jobs):
                self.take(id)

    def lose_b(self) -> None:
        self.b_is_here = False
        for job in self.jobs.values():
            if job.worker == "b":
                job.dead_since = job.dead_since or self.now - STEP // 2

    def write(self) -> None:
        pipeline = self.store.pipeline(transaction=True)
        pipeline.delete(f"{REF.base}:active", *self.store.keys(f"{REF.base}:job-*"))
        pipeline.hset(f"{REF.base}:meta", "version", "bullmq:5.81.5")
        pipeline.set(f"{REF.base}:id", self.number)
        pipeline.set(f"{REF.base}:stalled-check", 1, px=LOCK)
        for id, job in self.jobs.items():
            known = {"name": "mail", "data": "{}", "timestamp": job.taken, "processedOn": job.taken, "ats": 1}
            pipeline.hset(f"{REF.base}:{id}", mapping={**known, "pb": job.worker})
            pipeline.lpush(f"{REF.base}:active", id)
            if end := job.ends(self.now):
                pipeline.set(f"{REF.base}:{id}:lock", "token", px=end - self.now)
        pipeline.execute()


@contextmanager
def asking(sampled: int, due: int, life: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(active_jobs, "SAMPLED", sampled)
        patch.setattr(active_job_reader, "DUE", due)
        patch.setattr(active_job_reader, "FACTS_LIFE", life)
        yield


def found(inbox: StuckInbox, *, tells_late: bool) -> object:
    tally = inbox.tally(REF)
    assert not inbox.faults
    kinds = {kind: count for kind, count in (tally.kinds if tally else {}).items() if count}
    if not tells_late:
        kinds[VerdictKind.RUNNING] = kinds.get(VerdictKind.RUNNING, 0) + kinds.pop(VerdictKind.LATE, 0)
    kept = [row for row in inbox.rows if tells_late or row.verdict.kind is not VerdictKind.LATE]
    rows = {(row.job.id, row.verdict.kind, row.since) for row in kept}
    return kinds, rows, tally and tally.looked


@contextmanager
def worker(store: Store, name: str) -> Iterator[Callable[[], None]]:
    client = store.connect()
    client.client_setname(f"bull:{b64encode(b'looks').decode()}:w:{name}")
    try:
        yield client.close
    finally:
        client.close()


def history(one: WatchBench, store: Store, seed: int, due: int) -> dict[VerdictKind, int]:
    """Both looks at each step; how often each kind was found."""
    store.client.flushall()
    random, told = Random(seed), dict[VerdictKind, int]()
    world = World(random, store.client, shared_clock.now())
    for _ in range(JOBS):
        world.take()
    gone_at = random.randrange(3, STEPS)
    full, spare = (OrphanWatch(one.registry, lambda: one.collector.newest, writes=False) for _ in range(2))
    with ExitStack() as stack:
        stack.enter_context(worker(store, "a"))
        leave = stack.enter_context(worker(store, "b"))
        world.write()
        one.discover()
        for step in range(STEPS):
            world.step()
            if step == gone_at:
                world.lose_b()
                leave()
            world.write()
            one.collector.look(world.now)
            with asking(ALL, ALL, 0):
                wanted = full.look(world.now)
            with asking(2, due, 6 * STEP):
                got = spare.look(world.now)
            tells_late = due == ALL
            assert found(got, tells_late=tells_late) == found(wanted, tells_late=tells_late), (seed, step)
            for kind, count in (wanted.tally(REF).kinds if wanted.tally(REF) else {}).items():  # type: ignore[union-attr]
                told[kind] = told.get(kind, 0) + count
    return told


@pytest.mark.parametrize("due", [ALL, 1], ids=["all that is due", "one lock that is due"])
def test_a_look_that_spares_locks_finds_what_a_full_look_finds(watch_bench: Make, valkey: Store, due: int) -> None:
    one, told = watch_bench(valkey), dict[VerdictKind, int]()

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 1 << 32))
    def run(seed: int) -> None:
        for kind, count in history(one, valkey, seed, due).items():
            told[kind] = told.get(kind, 0) + count

    run()
    assert {VerdictKind.RUNNING, VerdictKind.LATE, VerdictKind.WORKER_LOST, VerdictKind.ORPHAN} <= told.keys(), (
        "each of them was to be found"
    )
    assert queue_state.FACTS_LIFE < STEP
