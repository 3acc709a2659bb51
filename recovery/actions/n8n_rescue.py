"""Runs an execution of n8n again whose worker was lost: before n8n overwrites its data, or from the kept copy.

One rescue at a time: the process that begins one claims the row of the history first, with a conditional UPDATE.

1. While the execution has not ended, its row in n8n's database is locked, looked at once more, and n8n is asked to
retry it. n8n's main, and a worker that was only frozen, wait for that lock before they write how it ended: the retry
reads the data as it was. 2. After n8n has overwritten it, the copy is written back in one transaction that looks at the
row again, and then n8n is asked. Where that fails the data stays restored, and n8n's own retry works too.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.db import Error

from recovery.actions import execution_copies as copies
from recovery.actions import n8n_retry
from recovery.actions.n8n_retry import RetryOutcome
from recovery.config import N8n
from recovery.connections.sql import SqlWire
from recovery.domain.acting import Done, Outcome
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.losses import Loss, LossOutcome
from recovery.domain.n8n.standing import state_of
from recovery.errors import AccessDenied, StatementRefused, StoreError
from recovery.n8n import holding, run_data
from recovery.n8n.public import Retry
from recovery.n8n.tables import Tables
from recovery.reads.n8n import losses

_UNKNOWN_LOSS = "The history of lost executions cannot be read, or does not have it."
_TAKEN = "Another rescue of it has begun."
_MOVED = "It is {status} now."
_WIPED = "n8n has overwritten its data: rescue it again, its copy is used then."
_SEALED = "Its copy cannot be decrypted: it was made with another UNSTALL_SECRET_KEY."
_NO_COPY = "There is no copy of its data (any more)."
_NO_LOCK = "Our user may not lock n8n's executions: GRANT UPDATE (status) on them (docs/n8n.md)."
_RESTORED = "Its data was restored from the copy."


@dataclass(frozen=True, slots=True)
class RescuePlace:
    """One installation and its database."""

    n8n: N8n
    wire: SqlWire
    known: Tables


def rescue(place: RescuePlace, execution: Execution, *, latest: bool, now: int) -> Done:
    """Rescues an execution; returns the result. Raises StoreError while nothing was begun."""
    try:
        loss = losses.of_executions(place.n8n.name, [execution.id]).get(execution.id)
        is_ours = loss is not None and copies.claim(loss, now)
    except Error:
        return _refused(execution, _UNKNOWN_LOSS)
    if loss is None or not is_ours:
        return _refused(execution, _UNKNOWN_LOSS if loss is None else _TAKEN)
    try:
        found = (
            _going(place, execution, latest) if execution.status.is_going else _ended(place, execution, loss, latest)
        )
    except StoreError:  # raised while nothing was begun; after another error the claim stays until its result is known
        copies.release(loss.number)
        raise
    _conclude(loss, execution, found, now)
    return found.done


def _going(place: RescuePlace, execution: Execution, latest: bool) -> RetryOutcome:
    """Rescues an execution that has not ended: n8n reads its data while our lock keeps it from being overwritten."""
    wire, known = place.wire, place.known
    if not holding.can_hold(wire, known):
        return RetryOutcome(_refused(execution, _NO_LOCK))
    retried: RetryOutcome | None = None
    try:
        with holding.held(wire, known, [execution.id]) as found:
            held = found.get(execution.id)
            if held is None or not held.is_there or not _is_same(held, execution):
                return RetryOutcome(_refused(held or execution, _MOVED.format(status=held.status if held else "gone")))
            if run_data.is_overwritten(wire, place.n8n, execution.id):
                return RetryOutcome(_refused(execution, _WIPED))
            retried = n8n_retry.retry(wire, known, _asked(place, execution, latest), state_of(execution.status))
    except StoreError:
        if retried is None:
            raise  # else only the lock was lost: nothing was written under it
    return retried


def _ended(place: RescuePlace, execution: Execution, loss: Loss, latest: bool) -> RetryOutcome:
    """Rescues an execution that has ended: from the copy, unless n8n still has its data."""
    is_restored = False
    if run_data.is_overwritten(place.wire, place.n8n, execution.id) is not False:
        if why := _restore(place, execution, loss):
            return RetryOutcome(_refused(execution, why))
        is_restored = True
    found = n8n_retry.retry(place.wire, place.known, _asked(place, execution, latest), state_of(execution.status))
    said = f"{_RESTORED} {found.done.why}" if is_restored else found.done.why
    return RetryOutcome(Done(execution.id, found.done.outcome, said, found.done.state), found.made)


def _restore(place: RescuePlace, execution: Execution, loss: Loss) -> str:
    """Restores the data from the copy; returns why it was not restored, "" when it was."""
    if not loss.has_copy:
        return _NO_COPY
    text = copies.opened(loss)
    if text is None:
        return _SEALED
    try:
        return run_data.restore(place.wire, place.known, place.n8n, execution, text)
    except (AccessDenied, StatementRefused) as error:
        return f"The database refused it: {error.reason}"


def _conclude(loss: Loss, execution: Execution, found: RetryOutcome, now: int) -> None:
    """Records that it runs again, or that nothing was begun. While that is unsure, the claim stays."""
    if found.made:
        outcome = LossOutcome.RESCUED if execution.status.is_going else LossOutcome.RETRIED
        copies.ended(loss, outcome, now, retried_as=found.made)
    elif found.done.outcome is Outcome.REFUSED:
        copies.release(loss.number)


def _asked(place: RescuePlace, execution: Execution, latest: bool) -> Retry:
    return Retry(place.n8n, execution.id, latest=latest)


def _is_same(held: Execution, execution: Execution) -> bool:
    return (held.status, held.started_at) == (execution.status, execution.started_at)


def _refused(execution: Execution, why: str) -> Done:
    return Done(execution.id, Outcome.REFUSED, why, state_of(execution.status))
