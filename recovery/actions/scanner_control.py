"""Operator commands on scanners: run one now, pause one, resume it. Each is in the audit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from django.db import Error, transaction

from recovery import shared_clock
from recovery.actions.action_reason import require_reason
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind, ScanStatus
from recovery.errors import BadOrder, Forbidden, NotRecorded
from recovery.models import ScannerPause, ScanRun
from recovery.stores.registry import registry

ORDERED, PAUSED, GOES_ON = "scan", "pause scanner", "resume scanner"  # acts of the audit's notes
WAITING_AT_ONCE = 3  # runs of one scanner: they run one after the other, with much the same result

T = TypeVar("T")


def order(
    actor: Actor, scan: ScannerKind, dry_run: bool = False, queue: QueueRef | None = None, reason: str = ""
) -> ScanRun:
    """Requests a run; the scheduler starts it within a second.

    A dry run takes the right to act on jobs, any other the right to act in bulk. Raises Forbidden, BadOrder,
    DeploymentMissing and NotRecorded.
    """
    _allowed(actor, dry_run=dry_run)
    wanted = require_reason(reason)
    if not scan.can_be_ordered:
        raise BadOrder(f"{scan.value.capitalize()} always runs.")
    if queue is not None:
        if not scan.may_act:
            raise BadOrder(f"{scan.value.capitalize()} is for all queues.")
        registry().config.deployment(queue.deployment)
    if not dry_run and ScannerPause.objects.filter(pk=scan.value).exists():
        raise BadOrder(f"{scan.value.capitalize()} is paused. Resume it first, or start a dry run.")
    if ScanRun.objects.filter(scanner=scan.value, status=ScanStatus.WAITING).count() >= WAITING_AT_ONCE:
        raise BadOrder(f"{WAITING_AT_ONCE} runs of {scan.value} are already waiting to start.")
    return _recorded(lambda: _ordered(actor, scan, dry_run, queue, wanted))


def start_from_shell(
    actor: Actor, scan: ScannerKind, dry_run: bool, queue: QueueRef | None, epoch: int | None
) -> ScanRun:
    """Records a run that an operator executes in the shell, under the epoch of the leader. Raises NotRecorded."""
    reason = "Started from the shell."

    def begun() -> ScanRun:
        run = _ordered(actor, scan, dry_run, queue, reason)
        ScanRun.objects.filter(pk=run.pk).update(status=ScanStatus.RUNNING, started_at=run.wanted_at, epoch=epoch)
        run.refresh_from_db()
        return run

    return _recorded(begun)


def pause(actor: Actor, scan: ScannerKind, reason: str) -> bool:
    """Pauses a scanner after its current chunk, or returns False if it is. Raises Forbidden, BadOrder, NotRecorded."""
    _allowed(actor, dry_run=False)
    wanted = require_reason(reason)
    if not scan.can_pause:
        raise BadOrder(f"Without {scan.value} every page would be out of date.")
    return _recorded(lambda: _paused(actor, scan, wanted))


def resume(actor: Actor, scan: ScannerKind, reason: str = "") -> bool:
    """Resumes a scanner; returns False if it is not paused. Raises Forbidden, BadOrder, NotRecorded."""
    _allowed(actor, dry_run=False)
    wanted = require_reason(reason) if reason else ""
    return _recorded(lambda: _going_on(actor, scan, wanted))


def _ordered(actor: Actor, scan: ScannerKind, dry_run: bool, queue: QueueRef | None, reason: str) -> ScanRun:
    run = ScanRun.objects.create(
        scanner=scan.value,
        status=ScanStatus.WAITING,
        dry_run=dry_run,
        deployment=queue.deployment if queue else "",
        base=queue.slug if queue else "",
        actor=canonical(asdict(actor)),
        reason=reason,
        wanted_at=_now(),
    )
    audit_log.note(actor, ORDERED, reason, {"scanner": scan.value, "run": run.pk, "dry_run": dry_run}, queue)
    return run


def _paused(actor: Actor, scan: ScannerKind, reason: str) -> bool:
    values: dict[str, Any] = {"by": actor.name, "at": _now(), "reason": reason}
    _, is_new = ScannerPause.objects.get_or_create(pk=scan.value, defaults=values)
    if is_new:
        audit_log.note(actor, PAUSED, reason, {"scanner": scan.value})
    return is_new


def _going_on(actor: Actor, scan: ScannerKind, reason: str) -> bool:
    gone, _ = ScannerPause.objects.filter(pk=scan.value).delete()
    if gone:
        audit_log.note(actor, GOES_ON, reason, {"scanner": scan.value})
    return bool(gone)


def _recorded(change: Callable[[], T]) -> T:
    """Commits a change together with its note in the audit, or neither."""
    try:
        with transaction.atomic():
            return change()
    except Error as error:
        raise NotRecorded(
            f"The database could not store it, so nothing was changed: {type(error).__name__}."
        ) from error


def _allowed(actor: Actor, *, dry_run: bool) -> None:
    if not (actor.may_bulk or (dry_run and actor.may_act)):
        right = "to act on jobs" if dry_run else "to act in bulk"
        raise Forbidden(f"This needs the permission {right}.")


def _now() -> int:
    return shared_clock.now()
