"""Retries the failed jobs of one queue in one run, step by step, each step as large as the safety limits allow.

1. Earlier retries are settled, so that the breakers know. 2. Candidates are chosen that no breaker blocks. 3. The
budget grants some of them. 4. Their retry is recorded: in their history, and in the breakers. 5. They are retried.
6. What was surely not retried after all is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.actions.safety_limits import auto_retry_limits
from recovery.actions.safety_limits.auto_retry_limits import AutoRetryCandidate
from recovery.domain.actions.types import Action, ExpectedJob, Outcome
from recovery.domain.identifiers import printable
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.redaction import redact
from recovery.domain.safety_limits.circuit_breaker import BreakerStage, CircuitBreaker
from recovery.domain.safety_limits.retry_budget import RetryBudgetLimit, limit
from recovery.domain.scanners.types import ScannerFinding
from recovery.domain.time_units import MINUTE, SECOND, age
from recovery.reads.auto_retry import outcomes
from recovery.reads.queues import completed_counts
from recovery.reads.queues.job_lists import Queue
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import BREAKER, SafetyLimitScope, breaker_key
from recovery.scanners.auto_retry import feedback
from recovery.scanners.auto_retry.candidates import LOOKED, RetryableJob, RetryCandidates
from recovery.scanners.runtime.scanner_actions import ScannerActionRequest, ScannerActions

STEP = 100  # jobs of one step: one call, so that jobs are retried close to when the budget granted it
WINDOWS = 20  # read in one step: some tenths of a second, so that no other queue waits long
OBSERVED = 500  # failed jobs of one queue read in one run where nothing may be retried
LOOK = 2 * SECOND  # between two checks of the retried jobs, while nothing else can be retried
BreakersByKey = Mapping[str, CircuitBreaker]
_WENT = frozenset({Outcome.DONE, Outcome.UNKNOWN})


class QueueAutoRetry:
    """Auto-retry of one queue in one run. `holds`: sentences about what blocks jobs; the last on each subject counts.

    `clock` is the time of the safety limits. `never`: why nothing may be retried here, whatever the policy says.
    """

    def __init__(
        self,
        queue: Queue,
        scanner_actions: ScannerActions,
        clock: Callable[[], int],
        *,
        cursor: str = "",
        never: str = "",
    ) -> None:
        self.finds: list[ScannerFinding] = []
        self.holds: dict[str, str] = {}
        self._queue = queue
        self._scanner_actions = scanner_actions
        self._clock = clock
        self._candidates = RetryCandidates(queue, lambda: scanner_actions.policy(queue.ref).policy, cursor)
        self._never = never
        self._observed = ""  # why due jobs are not retried
        self._held: set[str] = set()  # errors whose breaker is open
        self._limit: RetryBudgetLimit | None = None

    @property
    def looked(self) -> int:
        return self._candidates.looked

    @property
    def resume(self) -> str:
        """Cursor at which the next run begins."""
        return self._candidates.resume(self._held)

    def step(self) -> int | None:
        """Retries as many jobs as can be retried now; returns when to go on, None: this run has done what it can.

        Raises StoreError, NotRecorded, and Error of the database.
        """
        ref = self._queue.ref
        now = self._clock()
        if self._scanner_actions.is_stopped:
            return None
        self._observed = self._never or self._scanner_actions.why_not(ref)
        if self._observed:
            return self._look_on(now)
        feedback.settle_jobs(self._queue, auto_retry_limits.unsettled_retries(ref, now).get(ref, ()), now)
        room = min(STEP, self._scanner_actions.room(ref))
        if not room:
            self._tell_full()
            return None
        breakers = limit_rows.values_by_key(BREAKER, SafetyLimitScope.of(ref))
        chosen = self._choose(room, breakers, now)
        return self._go(chosen, now) if chosen else self._later(breakers, now)

    def close(self) -> None:
        """Adds the finds of what was not retried: one for each job that would have been, and one for each reason."""
        if self._observed:
            due = self._candidates.waiting[: self._scanner_actions.room(self._queue.ref)]
            self.finds += [ScannerFinding(self._queue.ref.job(one.id), _what(one), self._observed) for one in due]
        for rule, kept in self._candidates.kept.items():
            jobs = "1 failed job is" if kept.count == 1 else f"{kept.count:,} failed jobs are"
            self._tell_queue(kept.why, f"{jobs} not auto-retried: {rule.value}")
        if self._candidates.looked >= LOOKED:
            label, total = self._queue.ref.label, self._candidates.total
            of = "" if total is None else f" of {total:,}"
            self.holds["looked"] = (
                f"{self.looked:,}{of} failed jobs of {label} were checked; the next run continues there."
            )

    # -- which jobs may be retried

    def _choose(self, room: int, breakers: BreakersByKey, now: int) -> list[RetryableJob]:
        """Chooses jobs to retry; reads as many windows as that takes, but not too many in one step."""
        chosen, wanted = self._allowed(room, breakers, now)
        for _ in range(WINDOWS):
            if len(chosen) >= wanted or not self._candidates.may_have_more:
                break
            self._candidates.read(now)
            chosen, wanted = self._allowed(room, breakers, now)
        return chosen

    def _allowed(self, room: int, breakers: BreakersByKey, now: int) -> tuple[list[RetryableJob], int]:
        """Returns the jobs that breakers allow, the oldest first, but the likeliest as a probe; and how many fit."""
        every = self._breaker("", breakers, now)
        room = min(room, every.room(now))
        allowed: list[RetryableJob] = []
        for signature, waiting in self._candidates.due.items():
            own = self._breaker(signature, breakers, now)
            probes = own.stage(now) is BreakerStage.HALF_OPEN
            allowed += (sorted(waiting, key=_hope) if probes else waiting)[: own.room(now)]
        probes = every.stage(now) is BreakerStage.HALF_OPEN
        return sorted(allowed, key=_hope if probes else _place)[:room], room

    def _breaker(self, signature: str, breakers: BreakersByKey, now: int) -> CircuitBreaker:
        """Returns the breaker of an error; reports it while it is not closed."""
        breaker = breakers.get(breaker_key(signature), CircuitBreaker(signature))
        if breaker.stage(now) is BreakerStage.CLOSED:
            self._held.discard(signature)
            self.holds.pop(f"breaker {signature}", None)
            return breaker
        self._held.add(signature)
        what = f"“{_plain(signature)}”" if signature else "all errors"
        said = f"Breaker of {self._queue.ref.label} for {what}: {redact.text(breaker.words(now))}"
        self.holds[f"breaker {signature}"] = said
        return breaker

    def _later(self, breakers: BreakersByKey, now: int) -> int | None:
        """Returns when a retried job may have ended, or a breaker may let jobs through; None: no job waits for that."""
        every = _opens(self._breaker("", breakers, now), now)
        waiting = [signature for signature, due in self._candidates.due.items() if due]
        each = [_opens(self._breaker(signature, breakers, now), now) for signature in waiting]
        if self._candidates.may_have_more:
            each.append(now)  # not read yet, because nothing may be retried at all
        return max(every, min(each)) if each else None

    # -- the jobs are retried

    def _go(self, chosen: Sequence[RetryableJob], now: int) -> int:
        """Retries the chosen jobs. The budget's grant is for this moment, so all that takes time comes before it."""
        ref = self._queue.ref
        self._candidates.take(chosen)
        ready = self._candidates.again(chosen, now)
        failed_at = outcomes.failed_at(self._queue, [due.id for due in ready])
        ready = [due for due in ready if due.id in failed_at]
        allowed = self._allowance()
        grant = auto_retry_limits.take_budget(ref, len(ready), allowed, self._clock())
        went = grant.count  # counted as retried if an error comes in between
        try:
            self._candidates.put_back(ready[grant.count :])
            if went:
                went = self._launched(ready[: grant.count], failed_at)
        finally:
            auto_retry_limits.return_budget(ref, grant, grant.count - went, self._clock())
        return now if grant.count == len(ready) else self._without_budget(allowed)

    def _launched(self, going: Sequence[RetryableJob], failed_at: Mapping[str, int]) -> int:
        """Retries the jobs; returns how many were retried, or may have been."""
        ref = self._queue.ref
        jobs = {
            due.id: AutoRetryCandidate(due.signature, failed_at[due.id], due.failed.row.added_at or 0) for due in going
        }
        admitted = set(auto_retry_limits.admit_retries(ref, jobs, self._clock()))
        self._candidates.put_back([due for due in going if due.id not in admitted])
        going = [due for due in going if due.id in admitted]
        sentence = self._scanner_actions.policy(ref).sentence(PolicyScanner.AUTO_RETRY, self._clock())
        requests = [ScannerActionRequest(ExpectedJob.of(due.failed.row), _what(due), sentence) for due in going]
        finds = self._scanner_actions.do(Action.RETRY, ref, requests)
        self.finds += finds
        stayed = [find.job.id for find in finds if find.outcome not in _WENT]
        if stayed:
            auto_retry_limits.withdraw_retries(ref, stayed, self._clock())
        return len(going) - len(stayed)

    def _allowance(self) -> RetryBudgetLimit:
        """Returns the budget's limit, computed once per run: the sum of an hour changes slowly."""
        if self._limit is None:
            self._limit = limit(completed_counts.last_hour(self._queue, self._clock()))
        return self._limit

    def _without_budget(self, allowed: RetryBudgetLimit) -> int:
        now = self._clock()
        self.holds["budget"] = f"Budget of {self._queue.ref.label}: {allowed.words} The rest waits."
        free_at = auto_retry_limits.budget_free_at(self._queue.ref, allowed, now=now)
        return now + MINUTE if free_at is None else free_at

    # -- nothing may be retried

    def _look_on(self, now: int) -> int | None:
        """Reads which jobs would be retried if they were allowed."""
        for _ in range(WINDOWS):
            if not self._may_look_on():
                return None
            self._candidates.read(now)
        return now

    def _may_look_on(self) -> bool:
        candidates, room = self._candidates, self._scanner_actions.room(self._queue.ref)
        return candidates.may_have_more and candidates.looked < OBSERVED and len(candidates.waiting) < room

    def _tell_full(self) -> None:
        """Reports that the maximum per run is reached, if more jobs are left for the next run."""
        if self._candidates.waiting or self._candidates.may_have_more:
            self.holds["most"] = f"The maximum of jobs per run is reached for {self._queue.ref.label}: the rest waits."

    def _tell_queue(self, why: str, what: str = "failed jobs") -> None:
        self.finds.append(ScannerFinding(self._queue.ref.job(""), what, why))


def _opens(breaker: CircuitBreaker, now: int) -> int:
    """Returns the earliest time at which a breaker may let a job through again."""
    return breaker.retry_at if breaker.stage(now) is BreakerStage.OPEN else now + LOOK


def _hope(due: RetryableJob) -> tuple[int, int]:
    return due.past.made, due.failed.failure.failed_at or 0


def _place(due: RetryableJob) -> tuple[int, int]:
    return due.place


def _what(due: RetryableJob) -> str:
    failure = due.failed.failure
    ago = age(max(0, due.read_at - (failure.failed_at or due.read_at)))
    return f"failed {ago} ago with “{_plain(failure.signature)}”. {due.words}"


def _plain(signature: str) -> str:
    return redact.text(printable(signature)) or "no message"
