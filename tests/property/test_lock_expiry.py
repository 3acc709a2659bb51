"""Whatever Bull does with a job between two looks: of one that a live worker has it is never proven that it is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from recovery.domain.stuck.lock_expiry import ENDED_FOR, LockExpiry, LockObservation, follow_lock

LOCK = 30_000
LATE = 0.4 * LOCK
COUNTERS = (1, None, 0, 0)
SEEN = LockExpiry(COUNTERS, ends_at=100_000, rank=3, locked_at=97_000, seen_at=97_000)
WALKS, STEPS = 40_000, 22
PAUSES = (100, 1_000, 2_000, 5_000, 5_000, 9_000, 16_000)  # ms


@dataclass(slots=True)
class Bull:
    """One job that stands behind others, the worker that has it, and a watch that follows its lock."""

    random: Random
    now: int = 1_000_000
    place: str = "wait"
    is_alive: bool = False  # whoever took it
    is_taken: bool = False  # by a worker that has not locked it yet
    lock: int | None = None  # its end
    older: int = 2
    processed: int | None = None
    attempts: int = 0
    stalls: int = 0
    is_marked: bool = False  # by the stalled check
    expiry: LockExpiry | None = None
    bare_since: int | None = None
    proofs: int = 0

    def moves(self) -> Iterator[Callable[[], None]]:
        yield from (self.look, self.look, self.wait, self.wait)
        if self.place == "wait":
            yield from (self.take, self.take)
        else:
            yield self.check_for_stalled
        if self.is_taken:
            yield from (self.start, self.start)
        if self.is_alive:
            yield self.die
        if self.is_alive and self.lock is not None:
            yield from (self.renew, self.fail_and_retry)

    def wait(self) -> None:
        self.now += self.random.choice(PAUSES)
        if self.lock is not None and self.lock <= self.now:
            self.lock = None

    def take(self) -> None:
        self.place, self.is_taken, self.is_alive = "active", True, True
        self.older = self.random.randint(0, 2)

    def start(self) -> None:
        self.is_taken, self.lock, self.processed, self.is_marked = False, self.now + LOCK, self.now, False

    def renew(self) -> None:
        self.lock, self.is_marked = self.now + LOCK, False

    def die(self) -> None:
        self.is_alive = self.is_taken = False

    def fail_and_retry(self) -> None:
        self.attempts += 1
        self._back()

    def check_for_stalled(self) -> None:
        if self.is_marked and self.lock is None:
            self.stalls += 1
            self._back()
        self.is_marked = self.place == "active"

    def _back(self) -> None:
        self.place, self.is_taken, self.is_alive, self.lock = "wait", False, False, None

    def look(self) -> None:
        if self.place != "active":
            self.expiry = self.bare_since = None
            return
        ttl = None if self.lock is None else self.lock - self.now
        counters = (self.processed, None, self.attempts, self.stalls)
        seen = LockObservation(self.now, ttl, self.older, ttl is not None and ttl < LATE, counters)
        self.expiry = follow_lock(self.expiry, seen)
        has_ended = self.expiry is not None and self.expiry.has_ended
        self.bare_since = (self.bare_since or self.now) if has_ended else None
        if self.bare_since is not None and self.now - self.bare_since >= ENDED_FOR:
            self.proofs += 1
            assert not self.is_taken, "a live worker is about to start it"
            assert self.lock is None


def test_a_job_that_a_live_worker_is_about_to_start_is_never_proven_lost() -> None:
    random, proofs = Random(17), 0
    for _ in range(WALKS):
        queue = Bull(random)
        for _ in range(STEPS):
            random.choice(list(queue.moves()))()
        proofs += queue.proofs
    assert proofs > 100, "some have lost it"


def bare(now: int = 100_000, **facts: Any) -> LockObservation:
    return LockObservation(**({"now": now, "ttl": None, "rank": 3, "counters": COUNTERS} | facts))


def test_a_lock_that_nobody_renews_is_followed_to_its_end() -> None:
    first = follow_lock(None, LockObservation(90_000, 10_000, 4, is_late=True, counters=COUNTERS))
    assert first == LockExpiry(COUNTERS, 100_000, 4, 90_000, 90_000)
    then = follow_lock(first, LockObservation(97_000, 3_000, 3, is_late=True))
    assert then == SEEN
    assert not then.has_ended
    ended = follow_lock(then, bare(100_500))
    assert ended is not None
    assert (ended.has_ended, ended.locked_at) == (True, 97_000)
    assert follow_lock(ended, bare(110_000, counters=None, rank=0)) is not None


@pytest.mark.parametrize(
    "seen",
    [
        bare(98_900),  # before its time: somebody has deleted it
        bare(counters=(2, None, 0, 0)),
        bare(counters=(1, None, 0, 1)),
        bare(rank=4),
        bare(112_001),
        bare(97_000),
        LockObservation(97_500, 30_000, 3),  # renewed
    ],
)
def test_whatever_else_may_have_happened_breaks_the_chain(seen: LockObservation) -> None:
    assert follow_lock(SEEN, bare()) is not None
    assert follow_lock(SEEN, seen) is None


@pytest.mark.parametrize("counters", [None, (None, None, 0, 0)])
def test_a_lock_says_nothing_of_a_job_that_was_not_read_with_it_or_never_started(counters: Any) -> None:
    late = LockObservation(90_000, 10_000, 3, is_late=True, counters=counters)
    assert follow_lock(None, late) is None
    assert follow_lock(SEEN, late) is None


def test_a_lock_that_is_renewed_in_time_is_not_followed() -> None:
    assert follow_lock(None, LockObservation(90_000, 20_000, 3, is_late=False, counters=COUNTERS)) is None


def test_a_lock_that_was_taken_anew_is_followed_anew() -> None:
    again = follow_lock(SEEN, LockObservation(98_000, 9_000, 3, is_late=True, counters=(5, None, 1, 0)))
    assert again == LockExpiry((5, None, 1, 0), 107_000, 3, 98_000, 98_000)
