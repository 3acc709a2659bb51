"""Keeps copies of what executions of n8n would need to run again, and the history of those whose worker was lost.

The database of the console holds both. A copy is compressed, encrypted with a key derived from SECRET_KEY and bound to
its installation and execution: in another row it cannot be read. Nobody is shown one; it is only ever written back to
the execution that it was taken of. Copies are bounded by size, count and age (`CopyLimits`); to make room the oldest of
those that are lost already go first, and of those at risk none.
"""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from recovery import encryption
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import JobRef, printable, slug
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.lost_executions import (
    AT_RISK,
    PROVEN,
    CopyLimits,
    LostExecutionOutcome,
    LostExecutionRecord,
    graver,
)
from recovery.domain.n8n.rescue import UNCLAIMED_AFTER
from recovery.domain.stuck.lock_expiry import ENDED_FOR
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import DAY
from recovery.models import ExecutionCopy, LostExecution

HISTORY_FOR = 90 * DAY
LONGEST = 30 * DAY  # the longest time that a copy can be configured to be kept
HISTORY = 10_000  # rows of the history at most, the newest
_PURPOSE = "execution copy"
_LEVEL = 1  # of zlib: JSON shrinks to a fifth at 100 MB/s
_ROWS = 500  # of one statement
_WORKER = 300
_FULL = "The copies of other executions at risk take all of the room ([n8n.copies])."
_DROPPED = "Its copy was dropped to make room for newer ones ([n8n.copies])."
OFF = "Copies are turned off ([n8n.copies] keep)."
_EXPIRED = "Its copy was deleted after {days:g} days ([n8n.copies])."


@dataclass(frozen=True, slots=True)
class ExecutionAtRisk:
    """An n8n job at risk, as one check found it."""

    job: JobRef
    verdict: VerdictKind
    lock_ends_at: int | None = None
    worker: str = ""
    cause: str = ""


def record_loss(n8n: str, risk: ExecutionAtRisk, execution: Execution, title: str, now: int) -> int:
    """Begins the history of one execution at risk, unless it is there already; returns its number."""
    row, _ = LostExecution.objects.get_or_create(
        n8n=n8n,
        execution=execution.id,
        job=job_key(risk.job.id),
        defaults={
            "started_at": execution.started_at,
            "workflow": execution.workflow[:100],
            "title": title,
            "mode": execution.mode[:40],
            "deployment": risk.job.queue.deployment,
            "base": slug(risk.job.queue.base),
            "verdict": risk.verdict.value,
            "worker": printable(risk.worker)[:_WORKER],
            "cause": risk.cause,
            "noticed_at": now,
            "proven_at": now if risk.verdict in PROVEN else None,
            "lock_ends_at": risk.lock_ends_at,
        },
    )
    return int(row.pk)


def update(loss: LostExecutionRecord, risk: ExecutionAtRisk, execution: Execution, now: int) -> None:
    """Updates the history if a later check found a graver verdict, or knows more. A proven verdict stays so."""
    changes: dict[str, object] = {}
    worst = graver(loss.verdict, risk.verdict) if risk.verdict in AT_RISK else loss.verdict
    if worst is not loss.verdict:
        changes["verdict"] = worst.value
    if loss.proven_at is None and risk.verdict in PROVEN:
        changes["proven_at"] = now
    if risk.worker and not loss.worker:
        changes["worker"] = printable(risk.worker)[:_WORKER]
    if risk.cause and not loss.cause:
        changes["cause"] = risk.cause
    if risk.lock_ends_at is not None and loss.lock_ends_at is None:
        changes["lock_ends_at"] = risk.lock_ends_at
    if execution.started_at != loss.started_at:
        changes["started_at"] = execution.started_at
    if loss.unheld_at is not None:
        changes["unheld_at"] = None
    if loss.outcome is LostExecutionOutcome.HELD:
        changes |= {"outcome": LostExecutionOutcome.AT_RISK.value, "noticed_at": now}
    if changes:
        _change(loss, **changes)


def mark_worker_alive(loss: LostExecutionRecord) -> None:
    """Records that the worker renews the lock again: the proof is refuted. The copy stays until the execution ends."""
    if loss.outcome is not LostExecutionOutcome.HELD:
        late = {"verdict": VerdictKind.LATE.value, "proven_at": None, "lock_ends_at": None, "unheld_at": None}
        _change(loss, outcome=LostExecutionOutcome.HELD.value, **late)


def mark_job_gone(loss: LostExecutionRecord, now: int) -> None:
    """Records that the job is gone while the execution has not ended.

    A worker writes the end of an execution before it ends the job, so a stalled check took the job away. Where the job
    was seen active without its lock before, that proves as much of its worker as the orphan watch asks for.
    """
    changes: dict[str, object] = {} if loss.unheld_at is not None else {"unheld_at": now}
    unlocked_at = loss.noticed_at if loss.lock_ends_at is None else loss.lock_ends_at
    if loss.proven_at is None and loss.verdict is VerdictKind.UNLOCKED and now - unlocked_at >= ENDED_FOR:
        changes["proven_at"] = now
    if changes:
        _change(loss, **changes)


def record_outcome(loss: LostExecutionRecord, outcome: LostExecutionOutcome, now: int, *, retried_as: str = "") -> None:
    """Records what became of an execution; the copy of one that runs again is deleted."""
    _change(loss, outcome=outcome.value, ended_at=loss.ended_at or now, retried_as=retried_as or loss.retried_as)
    if outcome in (LostExecutionOutcome.RESCUED, LostExecutionOutcome.RETRIED):
        drop([loss.number], "")


def forget(numbers: Collection[int]) -> None:
    """Deletes the history of executions that were not lost after all, with their copies."""
    listed = list(numbers)
    for start in range(0, len(listed), _ROWS):
        LostExecution.objects.filter(pk__in=listed[start : start + _ROWS]).delete()


def explain(number: int, trouble: str) -> None:
    """Records why there is no copy."""
    LostExecution.objects.filter(pk=number).exclude(copy_trouble=trouble).update(copy_trouble=trouble)


def drop(numbers: Sequence[int], trouble: str) -> int:
    """Deletes these copies, and records why in the history; returns how many there were."""
    count = 0
    for start in range(0, len(numbers), _ROWS):
        part = numbers[start : start + _ROWS]
        with transaction.atomic():
            count += ExecutionCopy.objects.filter(loss__in=part).delete()[0]
            LostExecution.objects.filter(pk__in=part).update(copy_trouble=trouble)
    return count


def save_copy(number: int, n8n: str, execution: str, text: str, limits: CopyLimits, *, now: int) -> str:
    """Stores a copy; returns why it was not kept, "" when it was. Raises Error of the database."""
    content = text.encode()
    sealed = encryption.encrypt(_PURPOSE, zlib.compress(content, _LEVEL), n8n, execution)
    if trouble := _make_room(n8n, len(sealed), limits):
        explain(number, trouble)
        return trouble
    with transaction.atomic():
        ExecutionCopy.objects.update_or_create(
            loss_id=number, defaults={"at": now, "size": len(content), "stored": len(sealed), "data": sealed}
        )
        LostExecution.objects.filter(pk=number).update(copy_trouble="")
    return ""


def load_copy(loss: LostExecutionRecord) -> str | None:
    """Returns the copy as n8n kept it; None if there is none, or it was not made with our key for this execution."""
    row = ExecutionCopy.objects.filter(loss=loss.number).first()
    if row is None:
        return None
    content = encryption.decrypt(_PURPOSE, bytes(row.data), loss.n8n, loss.execution)
    return None if content is None else zlib.decompress(content).decode()


def prune(n8n: str, limits: CopyLimits, now: int) -> int:
    """Deletes copies that are too old, or too many since a limit was lowered, and old history; returns how many."""
    old = _copies(n8n).filter(at__lt=now - limits.keep) if limits.is_on else _copies(n8n)
    why = _EXPIRED.format(days=limits.keep / DAY) if limits.is_on else OFF
    count = drop(list(old.values_list("loss_id", flat=True)), why)
    _make_room(n8n, 0, limits)
    going = (LostExecutionOutcome.AT_RISK, LostExecutionOutcome.HELD)
    done = LostExecution.objects.filter(n8n=n8n).exclude(outcome__in=going)
    aged = done.filter(noticed_at__lt=now - HISTORY_FOR)
    kept = done.order_by("-pk").values_list("pk", flat=True)[HISTORY - 1 : HISTORY].first()
    for rows in (aged, done.filter(pk__lt=kept) if kept is not None else done.none()):
        while keys := list(rows.values_list("pk", flat=True)[:_ROWS]):
            forget(keys)
            count += len(keys)
    return count


def leftovers(now: int) -> tuple[QuerySet[ExecutionCopy], QuerySet[LostExecution]]:
    """Returns rows that are too old under any limit, also of an installation that is no longer configured."""
    history = LostExecution.objects.filter(noticed_at__lt=now - HISTORY_FOR)
    return ExecutionCopy.objects.filter(at__lt=now - LONGEST), history


# -- one rescue at a time


def claim(loss: LostExecutionRecord, now: int) -> bool:
    """Claims the rescue for this process; returns False if another has begun it, or the row has changed meanwhile."""
    free = Q(claimed_at=None) | Q(claimed_at__lt=now - UNCLAIMED_AFTER)
    same = LostExecution.objects.filter(free, pk=loss.number, outcome=loss.outcome.value, retried_as="")
    return bool(same.update(claimed_at=now))


def release(number: int) -> None:
    """Releases the claim of a rescue that did not begin: the execution may be rescued again."""
    LostExecution.objects.filter(pk=number).update(claimed_at=None)


def _change(loss: LostExecutionRecord, **columns: object) -> None:
    LostExecution.objects.filter(pk=loss.number).update(**columns)


def _copies(n8n: str) -> QuerySet[ExecutionCopy]:
    return ExecutionCopy.objects.filter(loss__n8n=n8n)


def _make_room(n8n: str, size: int, limits: CopyLimits) -> str:
    """Deletes the oldest copies of lost executions until one more fits; returns why it does not fit, or ""."""
    copies = _copies(n8n)
    count = copies.count() + (size > 0)
    total = (copies.aggregate(total=Sum("stored"))["total"] or 0) + size
    if count <= limits.count and total <= limits.total:
        return ""
    spared = copies.exclude(loss__outcome=LostExecutionOutcome.AT_RISK)
    lost = spared.order_by("at", "pk").values_list("loss_id", "stored")
    dropped: list[int] = []
    for number, stored in lost.iterator():
        if count <= limits.count and total <= limits.total:
            break
        dropped.append(number)
        count, total = count - 1, total - stored
    drop(dropped, _DROPPED)
    return "" if count <= limits.count and total <= limits.total else _FULL
