"""Our requeue and a step of the library, on the same job at the same moment.

A hand of the library holds the jobs. In a round one lock is given a few milliseconds to live, and both sides set out
with offsets drawn from the same span: now the one comes first, now the other, now the lock is still there for both.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import StrEnum
from random import Random

from recovery.backends.base import Target
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion
from tests.contract.places import assert_each_once
from tests.contract.scene import Scene
from tests.support.hands import Hand
from tests.support.waiting import until

SPAN_MS = 5.0  # of the offsets: wider than what a round trip varies by
LOCK_SPAN_MS = (1, 4)  # the lock ends in the middle of it
SWEEP_MS = 100  # how often the last worker's own check runs, to clear up what neither side took
_STALLS = ("stc", "stalledCounter")

# What a worker does; it is given the job and an offset, and says whether it got its way.
Step = Callable[[Hand, str, float], bool]


class Winner(StrEnum):
    OURS = "ours"
    THEIRS = "theirs"
    NOBODY = "nobody"  # the lock was there for us, and not for them any more: the library's check takes it later


def finishes(hand: Hand, job: str, after: float) -> bool:
    return hand.finish(job, after=after) == ""


def renews(hand: Hand, job: str, after: float) -> bool:
    return hand.renew(job, after=after)


def sweeps(hand: Hand, job: str, after: float) -> bool:
    swept = hand.sweep(after=after)
    assert not swept.failed
    return job in swept.requeued


@dataclass(frozen=True, slots=True)
class Bout:
    """What came of some rounds: who won which job."""

    winners: dict[str, Winner]

    @property
    def tally(self) -> Counter[Winner]:
        return Counter(self.winners.values())


class Arena:
    """One queue, one hand that holds its jobs, and our operator."""

    def __init__(self, scene: Scene, random: Random) -> None:
        self.scene = scene
        self.hand = Hand.of(scene.queue)
        self.finished: list[str] = []  # by the hand
        self._random = random
        self._client = scene.store.client

    def bout(self, rounds: int, step: Step) -> Bout:
        """So many rounds, each on a job of its own that the hand has taken and the library's check has marked."""
        jobs = self.scene.queue.add_many(rounds)
        taken = [job for job in (self.hand.take() for _ in jobs) if job]
        assert sorted(taken) == sorted(jobs)
        self._mark()
        flavour, seen = self.scene.flavour, self._seen(taken)
        with ThreadPoolExecutor(1) as pool:
            winners = {job: self._round(pool, flavour, seen[job], step) for job in taken}
        if step is finishes:
            self.finished += [job for job, who in winners.items() if who is Winner.THEIRS]
        assert_each_once(self._client, self.scene.ref.base, jobs)
        return Bout(winners)

    def finish(self, jobs: Sequence[str]) -> None:
        """The hand completes what it still holds."""
        for job in jobs:
            assert self.hand.finish(job) == ""
            self.finished.append(job)

    def refuse(self, jobs: Sequence[str]) -> None:
        """The hand comes back late to what was taken from it: its library lets it finish nothing."""
        accepted = [job for job in jobs if self.hand.finish(job) == ""]
        assert accepted == []

    def rest(self, count: int) -> Counter[str]:
        """A worker of the library does all that is left; how often each job was completed, in all."""
        worker = self.scene.queue.work("ok", stalledInterval=SWEEP_MS)
        until(lambda: self.scene.queue.counts()["completed"] == count, 30, f"{count} completed jobs")
        by_worker = count - len(self.finished)
        until(lambda: len(worker.events("completed")) >= by_worker, what="the worker has told of all its jobs")
        completed = [str(job) for _, job in worker.events("completed")]
        worker.close()
        return Counter(self.finished + completed)

    def stalls(self, job: str) -> int:
        """What the library has counted."""
        return sum(int(value or 0) for value in self._client.hmget(self.scene.queue.key(job), _STALLS))

    def _round(self, pool: ThreadPoolExecutor, flavour: LibraryVersion, seen: ExpectedJob, step: Step) -> Winner:
        ours, theirs = (self._random.uniform(0, SPAN_MS) for _ in range(2))
        self._expire(seen.id, self._random.randint(*LOCK_SPAN_MS))
        started = pool.submit(step, self.hand, seen.id, theirs)
        threading.Event().wait(ours / 1000)
        done = self._requeue(flavour, seen)
        is_ours, is_theirs = done.outcome is Outcome.DONE, started.result()
        assert not (is_ours and is_theirs), f"job {seen.id} was taken by both"
        return Winner.OURS if is_ours else Winner.THEIRS if is_theirs else Winner.NOBODY

    def _requeue(self, flavour: LibraryVersion, seen: ExpectedJob) -> ScriptOutcome:
        # As the runner calls it for a proven orphan. Here the proof is wrong as often as not: the script must see.
        target, now = Target(self.scene.pipe, self.scene.ref, flavour), int(time.time() * 1000)
        (done,) = operator(flavour).on_jobs(Action.REQUEUE, target, [seen], ActionOptions(is_late=True), now)
        assert done.outcome in (Outcome.DONE, Outcome.REFUSED), done
        return done

    def _expire(self, job: str, ms: int) -> None:
        pipeline = self._client.pipeline(transaction=True)
        pipeline.delete(self.scene.queue.key("stalled-check"))
        pipeline.pexpire(self.scene.queue.key(job, "lock"), ms)
        assert pipeline.execute()[1] == 1, f"job {job} has no lock to run out"

    def _mark(self) -> None:
        """The first of the two passes of the library's check: it recovers only what it has marked before."""
        self.hand.sweep()
        assert self._client.scard(self.scene.queue.key("stalled")) == self._client.llen(self.scene.queue.key("active"))

    def _seen(self, jobs: Sequence[str]) -> dict[str, ExpectedJob]:
        rows = self.scene.reader.rows(self.scene.pipe, self.scene.ref, [(job, JobState.ACTIVE) for job in jobs])
        return {row.id: replace(ExpectedJob.of(row), token=None) for row in rows if row}
