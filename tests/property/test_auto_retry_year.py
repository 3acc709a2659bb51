"""A year of auto-retries under a seeded clock: an upstream that comes and goes, jobs that fail, scanners that restart.

What is written down beside the safety limits is counted plainly, so that a limit cannot be its own witness.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from recovery.domain.auto_retry.backoff import Backoff, Backoffs
from recovery.domain.auto_retry.job_failure import JobFailure
from recovery.domain.auto_retry.rules import (
    CAP_WINDOW,
    RETRY_CAP,
    NeverRetry,
    RetryCase,
    RetryHistory,
    RetryRule,
    decide_retry,
)
from recovery.domain.identifiers import QueueRef
from recovery.domain.safety_limits.circuit_breaker import ENOUGH, PAUSE, AutoRetryOutcome, BreakerStage, CircuitBreaker
from recovery.domain.safety_limits.retry_budget import RetryBudget, limit
from recovery.domain.time_units import DAY, HOUR, MINUTE, SECOND

START = 1_800_000_000_000
QUEUE = QueueRef("main", "bull:mail")
TABLE = Backoffs(Backoff(), {"mail": Backoff(3, 5 * SECOND), "token": Backoff(4, MINUTE)})
REASON = "connect ECONNREFUSED 10.0.0.7:5432"
LONGEST_STEP, LONGEST_RUN = 50 * MINUTE, 20 * MINUTE


@dataclass
class Job:
    id: str
    name: str
    failed_at: int
    is_hopeless: bool
    past: RetryHistory = field(default_factory=RetryHistory)
    ends_at: int = 0  # while it is out
    not_before: int = 0
    times: list[int] = field(default_factory=list)  # of its auto-retries, counted plainly


@dataclass
class Year:
    """The queue, its upstream, and the scanner with its safety limits."""

    dice: Random
    now: int = START
    is_up: bool = True
    turns_at: int = START
    completed: int = 0
    budget: RetryBudget = field(default_factory=RetryBudget)
    breaker: CircuitBreaker = field(default_factory=lambda: CircuitBreaker("connect ECONNREFUSED #"))
    failed: dict[str, Job] = field(default_factory=dict)
    out: dict[str, Job] = field(default_factory=dict)
    minute: deque[int] = field(default_factory=deque)
    auto_retried: int = 0
    opened: int = 0
    closed: int = 0
    opened_at: int | None = None
    up_since: int = START
    capped: int = 0
    held_back: int = 0  # by the budget

    def live(self, days: int) -> None:
        while self.now < START + days * DAY:
            self.now += self.dice.randint(SECOND, LONGEST_STEP)
            self._turn()
            self._fail_some()
            self._settle()
            self._restart()
            self._auto_retry()
            self._check_that_it_closes()

    def _turn(self) -> None:
        if self.now < self.turns_at:
            return
        self.is_up = not self.is_up
        self.up_since = self.now
        self.completed = self.dice.choice([0, 500, 20_000, 90_000])
        self.turns_at = self.now + round(self.dice.expovariate(1 / (36 * HOUR if self.is_up else 8 * HOUR)))

    def _fail_some(self) -> None:
        for _ in range(self.dice.randint(0, 2) if self.is_up else self.dice.randint(0, 6)):
            id = f"{self.now}-{len(self.failed)}-{self.dice.random()}"
            name = self.dice.choice(["mail", "token", "other"])
            self.failed[id] = Job(id, name, self.now, self.is_up and self.dice.random() < 0.1)

    def _settle(self) -> None:
        for job in [job for job in self.out.values() if job.ends_at <= self.now]:
            del self.out[job.id]
            fails = job.is_hopeless or not self.is_up
            before = self.breaker
            self.breaker = before.settled(
                job.id, AutoRetryOutcome.FAILED if fails else AutoRetryOutcome.SUCCEEDED, self.now, REASON
            )
            self._count_turns(before, job, fails=fails)
            if fails:
                job.failed_at, job.not_before = self.now, 0
                self.failed[job.id] = job

    def _count_turns(self, before: CircuitBreaker, job: Job, *, fails: bool) -> None:
        if before.opened_at is None and self.breaker.opened_at is not None:
            failed, of = self.breaker.tally(self.now)
            assert of >= ENOUGH
            assert failed * 2 > of
            self.opened += 1
            self.opened_at = self.now
        if before.opened_at is not None and self.breaker.opened_at is None:
            assert job.id == before.probe
            assert not fails
            self.closed += 1
            self.opened_at = None

    def _restart(self) -> None:
        """Another scanner leads: it knows what was kept, and nothing else."""
        self.budget = RetryBudget.from_json(json.loads(json.dumps(self.budget.as_json())))
        self.breaker = CircuitBreaker.from_json(json.loads(json.dumps(self.breaker.as_json())))

    def _auto_retry(self) -> None:
        if not self.breaker.room(self.now):
            return
        due = [job for job in list(self.failed.values()) if job.not_before <= self.now and self._is_due(job)]
        due.sort(key=lambda job: (job.past.made, job.failed_at))  # the most hopeful one is the probe
        allowed = limit(self.completed)
        room = min(len(due), self.breaker.room(self.now))
        grant, self.budget = self.budget.take(self.now, room, allowed)
        self.held_back += room - grant.count
        stage = self.breaker.stage(self.now)
        assert stage is not BreakerStage.OPEN or grant.count == 0
        assert stage is not BreakerStage.HALF_OPEN or grant.count <= 1
        for job in due[: grant.count]:
            self._go(job)
        self.minute.extend([self.now] * grant.count)
        while self.minute and self.minute[0] <= self.now - MINUTE:
            self.minute.popleft()
        assert not grant.count or len(self.minute) <= max(10, self.completed / 600)

    def _is_due(self, job: Job) -> bool:
        failure = JobFailure(job.name, REASON, failed_at=job.failed_at)
        found = decide_retry(RetryCase(QUEUE.job(job.id), failure, job.past), TABLE, NeverRetry(), self.now)
        self.capped += found.rule is RetryRule.CAPPED
        job.not_before = found.at or 0
        if found.rule.is_final:
            del self.failed[job.id]  # a person's
        return found.is_due

    def _go(self, job: Job) -> None:
        backoff = TABLE.of(job.name)
        assert self.now - job.failed_at >= backoff.first * backoff.factor ** len(job.times)
        job.past = job.past.retried(self.now)
        job.times.append(self.now)
        assert len(job.times) <= backoff.attempts
        assert sum(at > self.now - CAP_WINDOW for at in job.times) <= RETRY_CAP
        self.breaker = self.breaker.retried(job.id, self.now)
        job.ends_at = self.now + self.dice.randint(SECOND, LONGEST_RUN)
        self.out[job.id] = replace(job)
        del self.failed[job.id]
        self.auto_retried += 1

    def _check_that_it_closes(self) -> None:
        """An upstream that is well is found out without a person: one pause, one look, one run, one look for each probe
        that was hopeless by itself; ten of these in a row are bad luck beyond any seed.
        """
        if self.opened_at is None or not self.is_up:
            return
        assert self.now - max(self.opened_at, self.up_since) < 10 * (PAUSE.longest + 2 * LONGEST_STEP + LONGEST_RUN)


def test_a_year_of_auto_retrying_keeps_every_safety_limit() -> None:
    year = Year(Random(4))
    year.live(365)
    assert year.auto_retried > 10_000
    assert year.opened > 20
    assert year.closed >= year.opened - 1
    assert year.capped
    assert year.held_back


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 120))
def test_twenty_more_years_keep_every_safety_limit(seed: int) -> None:
    year = Year(Random(seed))
    year.live(365)
    assert year.closed >= year.opened - 1
