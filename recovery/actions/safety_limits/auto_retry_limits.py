"""Safety limits of auto-retry, kept in the database: the budget of a queue, its breakers, and the past of each job.

Each step is kept before what it allows is done, so that a process which dies in between has counted too much rather
than too little. `now` is the time of the database's clock, unless it is given. What cannot be kept raises NotRecorded:
then nothing may be done. A row that was lost or cannot be read counts as used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.db import Error, transaction

from recovery.actions.audit.audit_log import INTENT
from recovery.actions.safety_limits.compare_and_set import Change, swap, swap_one, swap_together
from recovery.actions.safety_limits.release import release
from recovery.domain.actions.types import Action
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.auto_retry.rules import RetryHistory
from recovery.domain.identifiers import QueueRef
from recovery.domain.redaction import redact
from recovery.domain.safety_limits.circuit_breaker import AutoRetryOutcome, CircuitBreaker, PendingRetry
from recovery.domain.safety_limits.retry_budget import BudgetGrant, RetryBudgetLimit
from recovery.domain.safety_limits.retry_budget_state import RetryBudgetState
from recovery.domain.time_units import DAY, HOUR, MINUTE, SECOND
from recovery.errors import NotRecorded
from recovery.models import AuditEntry
from recovery.reads.auto_retry.outcomes import AutoRetryResult
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import (
    BREAKER,
    BUDGET,
    QUARANTINE_RELEASE,
    REDIS_PAUSE,
    RETRY_HISTORY,
    SafetyLimitKind,
    SafetyLimitScope,
    breaker_key,
)
from recovery.stores.sql import database_clock

__all__ = [
    "AutoRetryCandidate",
    "AutoRetryResult",
    "admit_retries",
    "breaker_room",
    "budget_free_at",
    "prune",
    "release",
    "retry_histories",
    "return_budget",
    "settle_retries",
    "take_budget",
    "unsettled_retries",
    "withdraw_retries",
]

# Errors of one queue that have breakers of their own: beyond them, the one for all errors counts.
BREAKERS = 500
# For how long a row is kept after its last write. How often a job was auto-retried in all has to outlive the job.
_KEPT: Mapping[SafetyLimitKind[Any], int] = {
    BUDGET: DAY,
    QUARANTINE_RELEASE: 92 * DAY,  # longer than the incidents that it covers
    BREAKER: 30 * DAY,
    REDIS_PAUSE: 30 * DAY,
    RETRY_HISTORY: 90 * DAY,
}


@dataclass(frozen=True, slots=True)
class AutoRetryCandidate:
    """A job that is to be auto-retried: the signature of the error that it failed with, when it failed, and when it was
    added; 0: unknown.
    """

    signature: str
    failed_at: int = 0
    born: int = 0


# -- the budget


def take_budget(queue: QueueRef, wanted: int, limit: RetryBudgetLimit, now: int | None = None) -> BudgetGrant:
    """Takes up to `wanted` auto-retries from the budget. The caller must call `give_back` afterwards in any case."""
    grant = BudgetGrant(0, 0)

    def change(budget_state: RetryBudgetState, at: int) -> RetryBudgetState:
        nonlocal grant
        known = (
            RetryBudgetState.lost() if budget_state == RetryBudgetState() and _has_spent(queue, at) else budget_state
        )
        grant, left = known.take(at, wanted, limit)
        return left

    swap_one(BUDGET, SafetyLimitScope.of(queue), change, now=now)
    return grant


def return_budget(queue: QueueRef, grant: BudgetGrant, unused: int, now: int | None = None) -> None:
    """Returns what of a grant surely did not go, once its last job went; the others went just now at the latest."""
    if grant.count:
        swap_one(
            BUDGET,
            SafetyLimitScope.of(queue),
            lambda budget_state, at: budget_state.give_back(grant, unused, at),
            now=now,
        )


def budget_free_at(queue: QueueRef, limit: RetryBudgetLimit, wanted: int = 1, now: int | None = None) -> int | None:
    """Returns when so many may go, at the earliest; None: never, the limit is smaller."""
    with _read():
        at = database_clock.now() if now is None else now
        budget_state = limit_rows.read_row(BUDGET, SafetyLimitScope.of(queue)).value
        return budget_state.found(at, limit).budget.free_at(at, limit, wanted)


# -- the breakers: one for each error, and one for all of a queue


def breaker_room(queue: QueueRef, signature: str, now: int | None = None) -> int:
    """Returns how many jobs that failed with this error may be auto-retried now, as far as both of its breakers go."""
    with _read():
        at = database_clock.now() if now is None else now
        rows = limit_rows.read_rows(BREAKER, SafetyLimitScope.of(queue), ("", breaker_key(signature)))
        return min(row.value.room(at) for row in rows.values())


def unsettled_retries(
    queue: QueueRef | None = None, now: int | None = None
) -> dict[QueueRef, tuple[PendingRetry, ...]]:
    """Returns auto-retried jobs whose end is not recorded yet, by queue; only queues that have some."""
    with _read():
        at = database_clock.now() if now is None else now
        rows = limit_rows.rows_of_kind(BREAKER, SafetyLimitScope.of(queue) if queue else None).filter(key="")
        found = {limit_rows.place_of(row).queue: limit_rows.decode_row(BREAKER, row).value.followed(at) for row in rows}
        return {ref: followed for ref, followed in found.items() if followed}


def settle_retries(queue: QueueRef, ends: Mapping[str, AutoRetryResult], now: int | None = None) -> None:
    """Records how auto-retried jobs have ended, by id; a job that is not awaited changes nothing."""
    place = SafetyLimitScope.of(queue)
    with _read():
        held = limit_rows.values_by_key(BREAKER, place)
    concerned = [key for key, breaker in held.items() if any(job.id in ends for job in breaker.out)]
    swap(BREAKER, place, dict.fromkeys(concerned, _settling(ends)), now)


# -- the retry history of each job, and what is recorded before an auto-retry


def retry_histories(queue: QueueRef, ids: Sequence[str]) -> dict[str, RetryHistory]:
    """Returns the retry history of each of these jobs, by id."""
    with _read():
        rows = limit_rows.read_rows(RETRY_HISTORY, SafetyLimitScope.of(queue), (job_key(id) for id in ids))
        return {id: rows[job_key(id)].value for id in ids}


def admit_retries(queue: QueueRef, jobs: Mapping[str, AutoRetryCandidate], now: int | None = None) -> tuple[str, ...]:
    """Records the auto-retry of those jobs that may go, and returns their ids in order. Both breakers are asked again
    here, whatever room they had a moment ago. To be called before the jobs go.
    """
    place, going = SafetyLimitScope.of(queue), list[str]()
    with _read(), transaction.atomic():
        keys = _keys(place, jobs)

        def admit(breakers: Mapping[str, CircuitBreaker], at: int) -> dict[str, CircuitBreaker]:
            held = dict(breakers)
            going[:] = [id for id, job in jobs.items() if _goes(held, ("", keys[id]), id, job, at)]
            return held

        swap_together(BREAKER, place, {"", *keys.values()}, admit, now)
        swap(RETRY_HISTORY, place, {job_key(id): _counting(jobs[id]) for id in going}, now)
    return tuple(going)


def withdraw_retries(queue: QueueRef, ids: Sequence[str], now: int | None = None) -> None:
    """Takes back the auto-retry of jobs that have surely not gone after all."""
    with _read(), transaction.atomic():
        swap(
            RETRY_HISTORY,
            SafetyLimitScope.of(queue),
            dict.fromkeys(map(job_key, ids), lambda past, _: past.withdrawn()),
            now,
        )
        settle_retries(queue, dict.fromkeys(ids, AutoRetryResult(AutoRetryOutcome.UNKNOWN)), now)


def prune(now: int | None = None) -> int:
    """Deletes rows that have no effect any more; returns how many."""
    with _read():
        at = database_clock.now() if now is None else now
        gone = sum(limit_rows.rows_of_kind(kind).filter(at__lt=at - kept).delete()[0] for kind, kept in _KEPT.items())
        for row in limit_rows.rows_of_kind(BREAKER).iterator():
            held = limit_rows.decode_row(BREAKER, row)
            if held.is_readable and held.value.is_idle(at):
                gone += limit_rows.rows_of_kind(BREAKER).filter(pk=row.pk, version=row.version).delete()[0]
        return gone


def _has_spent(queue: QueueRef, at: int) -> bool:
    """Returns True if the audit has auto-retries that still count: then a budget that knows of none was lost."""
    lately = AuditEntry.objects.filter(at__gt=at - MINUTE - SECOND, at__lt=at + HOUR, phase=INTENT, act=Action.RETRY)
    return lately.filter(deployment=queue.deployment, base=queue.slug, actor_kind="scanner").exists()


def _keys(place: SafetyLimitScope, jobs: Mapping[str, AutoRetryCandidate]) -> dict[str, str]:
    """Returns the key of the breaker of each job's own error, or of the one for all errors."""
    keys = {id: breaker_key(job.signature) for id, job in jobs.items()}
    rows = limit_rows.rows_of_kind(BREAKER, place)
    if rows.count() < BREAKERS:
        return keys
    held = set(rows.filter(key__in=set(keys.values())).values_list("key", flat=True))
    return {id: key if key in held else "" for id, key in keys.items()}


def _goes(held: dict[str, CircuitBreaker], keys: Iterable[str], id: str, job: AutoRetryCandidate, at: int) -> bool:
    """Records the job in both breakers if both have room; returns whether they had."""
    both = dict.fromkeys(keys)
    for key in both:
        held[key] = _failed_meanwhile(held[key], id, job, at)
    if not all(held[key].room(at) for key in both):
        return False
    for key in both:
        held[key] = replace(held[key].retried(id, at, job.failed_at), signature=job.signature if key else "")
    return True


def _failed_meanwhile(breaker: CircuitBreaker, id: str, job: AutoRetryCandidate, at: int) -> CircuitBreaker:
    """Counts a failure of the job since its last auto-retry, if that one is still awaited: it is not recorded yet."""
    before = next((out for out in breaker.followed(at) if out.id == id), None)
    if before is None or not before.failed_at or job.failed_at in (0, before.failed_at):
        return breaker
    return breaker.settled(id, AutoRetryOutcome.FAILED, at)


def _counting(job: AutoRetryCandidate) -> Change[RetryHistory]:
    return lambda past, at: past.of_life(job.born).retried(at)


def _settling(ends: Mapping[str, AutoRetryResult]) -> Change[CircuitBreaker]:
    def change(breaker: CircuitBreaker, at: int) -> CircuitBreaker:
        for job in breaker.out:
            if job.id in ends:
                end = ends[job.id]
                breaker = breaker.settled(job.id, end.ended, at, redact.text(end.error))
        return breaker

    return change


@contextmanager
def _read() -> Iterator[None]:
    """Turns an error of the database into NotRecorded: the safety limits are unknown, so nothing may be done."""
    try:
        yield
    except Error as error:
        raise NotRecorded(
            f"The safety limits cannot be read, so nothing was changed: {type(error).__name__}."
        ) from error
