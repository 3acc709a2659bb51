"""Selects the failed jobs of one queue that may be retried, the oldest first, with the reasons against the others.

They are read in windows, as many as are needed. A run begins where the last one left due jobs, goes to the end
and then on from the start, so that thousands of hopeless jobs do not hide the jobs behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace

from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.auto_retry.rules import RetryCase, RetryDecision, RetryHistory, RetryRule, decide_retry
from recovery.domain.jobs import JobState
from recovery.domain.policies.types import Policy
from recovery.domain.stuck.context import QUARANTINE_AFTER
from recovery.domain.time_units import age
from recovery.reads.audit import manual_actions
from recovery.reads.auto_retry import failed_jobs
from recovery.reads.auto_retry.failed_jobs import FailedJob
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import incidents
from recovery.reads.stuck import queries as stuck_queries

LOOKED = 5_000  # failed jobs of one queue read in one run: a hundred windows
KEPT = 500  # of one error, read and waiting for their turn
FRESH = 10_000  # ms: what was read longer ago is read again before an action


@dataclass(frozen=True, slots=True)
class RetryableJob:
    """Failed job that may be retried, as it was read at `read_at`."""

    failed: FailedJob
    past: RetryHistory
    words: str
    read_at: int
    place: tuple[int, int] = (0, 0)  # which window it was in, and where

    @property
    def id(self) -> str:
        return self.failed.row.id

    @property
    def signature(self) -> str:
        return self.failed.failure.signature


@dataclass(frozen=True, slots=True)
class SkippedJobs:
    """Failed jobs that are not retried by one rule; `why` is the reason of the first."""

    count: int
    why: str


class RetryCandidates:
    """Candidates of one queue in one run; `policy` is called each time, as an operator may edit it meanwhile.

    `due` holds them by the signature of their error, the oldest first.
    """

    def __init__(self, queue: Queue, policy: Callable[[], Policy], cursor: str = "") -> None:
        self.due: dict[str, list[RetryableJob]] = {}
        self.kept: dict[RetryRule, SkippedJobs] = {}
        self.looked = 0
        self.total: int | None = None
        self._queue = queue
        self._policy = policy
        self._cursor = cursor
        self._starts: list[str] = []  # cursors of the windows that were read
        self._dropped: dict[str, int] = {}  # error → the first window of which not all were kept
        self._known: set[str] = set()
        self._has_turned = not cursor  # begun at the start, or come back to it
        self._is_through = False

    @property
    def may_have_more(self) -> bool:
        return not self._is_through and self.looked < LOOKED

    @property
    def waiting(self) -> list[RetryableJob]:
        """All due jobs, the oldest first."""
        return sorted((due for waiting in self.due.values() for due in waiting), key=lambda due: due.place)

    def read(self, now: int) -> None:
        """Reads one more window. Raises StoreError, NotRecorded and Error of the database."""
        self._starts.append(self._cursor)
        part = failed_jobs.window(self._queue, self._cursor)
        fresh = [one for one in part.jobs if one.row.id not in self._known]
        self._known.update(one.row.id for one in fresh)
        self.looked += len(fresh)
        self.total = part.total
        self._cursor = part.next
        if not part.next:
            self._is_through = self._has_turned
            self._has_turned = True
        for at, (one, past, said) in enumerate(self._judged(fresh, now)):
            if said.is_due:
                self._wait(RetryableJob(one, past, said.why, now, (len(self._starts) - 1, at)))
            else:
                known = self.kept.get(said.rule, SkippedJobs(0, said.why))
                self.kept[said.rule] = replace(known, count=known.count + 1)

    def resume(self, held: Container[str]) -> str:
        """Returns where the next run begins: at the first due job left, except for errors that a breaker holds."""
        left = [due.place[0] for due in self.waiting if due.signature not in held]
        left += [window for signature, window in self._dropped.items() if signature not in held]
        if left:
            return self._starts[min(left)]
        return "" if self._is_through else self._cursor

    def _wait(self, due: RetryableJob) -> None:
        waiting = self.due.setdefault(due.signature, [])
        if len(waiting) < KEPT:
            waiting.append(due)
        else:
            self._dropped.setdefault(due.signature, due.place[0])

    def take(self, chosen: Sequence[RetryableJob]) -> None:
        """Removes these jobs from the due ones."""
        ids = {due.id for due in chosen}
        for signature in {due.signature for due in chosen}:
            self.due[signature] = [due for due in self.due[signature] if due.id not in ids]

    def put_back(self, dues: Sequence[RetryableJob]) -> None:
        """Puts jobs that could not be retried yet back among the due. Read again, a job may have another error."""
        for due in dues:
            waiting = self.due.get(due.signature, ())
            self.due[due.signature] = sorted((*waiting, due), key=lambda one: one.place)

    def again(self, chosen: Sequence[RetryableJob], now: int) -> list[RetryableJob]:
        """Returns those that may still be retried; reads those again that were read a while ago. Raises as `read`."""
        old = [due for due in chosen if now - due.read_at > FRESH]
        if not old:
            return list(chosen)
        queue = self._queue
        rows = queue.reader.rows(queue.wire, queue.ref, [(due.id, JobState.FAILED) for due in old])
        found = failed_jobs.load_errors(queue, [row for row in rows if row is not None])
        fresh = {one.row.id: (one, past, said) for one, past, said in self._judged(found, now) if said.is_due}
        kept = [due for due in chosen if now - due.read_at <= FRESH]
        for due in old:
            if due.id in fresh:
                one, past, said = fresh[due.id]
                kept.append(RetryableJob(one, past, said.why, now, due.place))
        return sorted(kept, key=lambda due: due.place)

    def _judged(self, jobs: Sequence[FailedJob], now: int) -> list[tuple[FailedJob, RetryHistory, RetryDecision]]:
        """Judges failed jobs: first by the failure itself, then by the database for those that it does not rule out."""
        if not jobs:
            return []
        policy = self._policy()
        known = auto_retry_limits.retry_histories(self._queue.ref, [one.row.id for one in jobs])
        pasts = {one.row.id: known[one.row.id].of_life(one.row.added_at or 0) for one in jobs}
        first = [(one, pasts[one.row.id], _ruling(one, pasts[one.row.id], policy, now)) for one in jobs]
        facts = self._facts([one for one, _, said in first if said.is_due], now)
        return [
            (one, past, _ruling(one, past, policy, now, facts[one.row.id]) if said.is_due else said)
            for one, past, said in first
        ]

    def _facts(self, jobs: Sequence[FailedJob], now: int) -> Mapping[str, Mapping[str, bool]]:
        """Reads the facts that rules need. A failed job with an open incident counts as orphaned this time, too."""
        ids = [one.row.id for one in jobs]
        times, still_open = (
            incidents.orphan_counts(self._queue.ref, ids, now),
            incidents.open_numbers(self._queue.ref, ids),
        )
        ended = manual_actions.jobs_ended_by_people(self._queue.ref, ids)
        malformed = stuck_queries.malformed(self._queue, [one.row for one in jobs]) if jobs else {}
        return {
            id: {
                "is_quarantined": times.get(id, 0) + (id in still_open) >= QUARANTINE_AFTER,
                "is_malformed": id in malformed,
                "was_cancelled": id in ended,
            }
            for id in ids
        }


def _ruling(
    one: FailedJob, past: RetryHistory, policy: Policy, now: int, facts: Mapping[str, bool] | None = None
) -> RetryDecision:
    """Returns the ruling on one job. `facts` None: they were not read yet."""
    if one.unread:
        return RetryDecision(RetryRule.UNKNOWN, one.unread)
    said = decide_retry(RetryCase(one.row.ref, one.failure, past, **(facts or {})), policy.backoffs, policy.never, now)
    at = (one.failure.failed_at or now) + policy.auto_retry.after
    if said.is_due and at > now:
        return RetryDecision(RetryRule.WAITS, f"Its policy waits {age(at - now)} more.", at)
    return said
