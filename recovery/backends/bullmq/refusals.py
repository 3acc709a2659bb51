"""Says in words how a refused job is now: where it is, who holds it, what came in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.backends.base import Target
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.scripts import Answer
from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.redis_common import row_refresh
from recovery.backends.redis_common.layout import QueueContext
from recovery.domain.actions.types import ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.errors import StoreError

DATA_MISSING = "Its job data is missing: only its id is left in the list of active jobs. Failing it removes the id."
ENDED = "Its lock has expired since. It can be requeued or failed now."
UNTOLD = "It has changed since it was shown, and its current state cannot be read."
GONE = "The job is gone: there is no such job any more."
_WAITING = (JobState.WAITING, JobState.PAUSED, JobState.PRIORITIZED)


def explain_refused(
    target: Target, answers: Mapping[str, Answer], jobs: Sequence[ExpectedJob]
) -> dict[str, ScriptOutcome]:
    """Returns one refusal for each of these jobs; `answers` is what the script said of them, in one word."""
    scene = QueueContext(target.ref, BullMQKeys(target.ref.base), LAYOUT)
    try:
        wanted = [(seen.id, JobState.ACTIVE) for seen in jobs]
        rows = row_refresh.read(target.wire, scene, wanted, by_script=True) if jobs else ()
    except StoreError:  # others of the same call were changed, and that is known
        return {seen.id: ScriptOutcome(seen.id, Outcome.REFUSED, UNTOLD) for seen in jobs}
    return {seen.id: _as_it_is(seen, row, answers[seen.id]) for seen, row in zip(jobs, rows, strict=True)}


def _as_it_is(seen: ExpectedJob, row: JobRow | None, word: Answer) -> ScriptOutcome:
    if row is None:
        return ScriptOutcome(seen.id, Outcome.MISSING, GONE)
    if row.missing and row.state is JobState.ACTIVE:
        return ScriptOutcome(seen.id, Outcome.REFUSED, DATA_MISSING, JobState.ACTIVE)
    if row.state is not JobState.ACTIVE:
        return ScriptOutcome(seen.id, Outcome.REFUSED, _elsewhere(row), row.state)
    if _is_another_run(seen, row):
        return ScriptOutcome(
            seen.id, Outcome.REFUSED, f"Another worker has started it since{_hold(row.lock)}.", JobState.ACTIVE
        )
    if row.lock is not None:
        return ScriptOutcome(seen.id, Outcome.REFUSED, _locked(seen, row.lock), JobState.ACTIVE)
    return ScriptOutcome(seen.id, Outcome.REFUSED, _unlocked(seen, row, word), JobState.ACTIVE)


def _elsewhere(row: JobRow) -> str:
    if row.state is JobState.UNKNOWN:
        return "It is no longer active, and its current state is unknown."
    place = f"in wait now ({row.state})" if row.state in _WAITING else f"{row.state} now"
    return f"It is {place}, not active any more."


def _is_another_run(seen: ExpectedJob, row: JobRow) -> bool:
    return (row.processed_at, row.starts, row.attempts) != (seen.processed_at, seen.starts, seen.attempts)


def _hold(lock: JobLock | None) -> str:
    return f", and holds it{_expiry(lock)}" if lock else ""


def _expiry(lock: JobLock) -> str:
    return " (its lock never expires)" if lock.ttl is None else f" (expires in {round(lock.ttl / 1000)} s)"


def _locked(seen: ExpectedJob, lock: JobLock) -> str:
    if seen.token is None:
        return f"It is locked again{_expiry(lock)}."
    return f"It is locked{_expiry(lock)}." if seen.token == lock.token else f"It has another lock now{_expiry(lock)}."


def _unlocked(seen: ExpectedJob, row: JobRow, word: Answer) -> str:
    if word == "children":
        return "It still waits for children, and this BullMQ version cannot fail a job that does."
    if row.stalls != seen.stalls:
        return "It was recovered and taken by a worker again: it is active, without a lock."
    if seen.token is not None:
        return ENDED
    return "It changed during the action. It is active, without a lock: try again."
