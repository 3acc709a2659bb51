"""Releases a safety limit for an operator: together with its entry in the audit, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.db import Error, transaction

from recovery.actions import action_reason
from recovery.actions.audit import audit_log
from recovery.actions.safety_limits.compare_and_set import Change, swap_one
from recovery.domain.actions.types import Actor
from recovery.domain.auto_retry.rules import RetryHistory
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.redaction import redact
from recovery.domain.safety_limits.quarantine_release import QuarantineRelease
from recovery.errors import BadOrder, Forbidden, Missing, NotRecorded
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import (
    BREAKER,
    QUARANTINE_RELEASE,
    REDIS_PAUSE,
    RETRY_HISTORY,
    SafetyLimitKind,
    SafetyLimitRow,
    SafetyLimitScope,
    T,
)
from recovery.reads.stuck import incidents
from recovery.stores.sql import database_clock

NOTE = "release safety limit"  # the act of the audit's notes
QUARANTINE = "quarantine"
KINDS = (REDIS_PAUSE.name, BREAKER.name, RETRY_HISTORY.name, QUARANTINE)
_GONE = "There is no such safety limit (any more): it may have been released already."
_BY_LIMIT = 200  # characters


def release(actor: Actor, kind: str, deployment: str, base: str, key: str, reason: str) -> int:  # noqa: PLR0917 -- which one, and why
    """Releases one limit; returns the number of its note. `base` "": the deployment's own; `key` as the lists have it.

    Raises Forbidden, BadOrder, Missing and NotRecorded, each with nothing done.
    """
    if not actor.may_bulk:
        raise Forbidden("Releasing a safety limit needs the permission to act in bulk.")
    reason = action_reason.require_reason(reason)
    if kind not in KINDS:
        raise BadOrder(f"There is no safety limit of the kind {printable(kind)}. There are: {', '.join(KINDS)}.")
    queue = QueueRef(deployment, base)
    try:
        with transaction.atomic():
            was = _RELEASES[kind](printable(actor.name)[:_BY_LIMIT], queue, key)
            told = {"kind": kind, "deployment": deployment, "key": key, "was": redact.text(was)}
            return audit_log.note(actor, NOTE, reason, told, queue if base else None)
    except Error as error:
        raise NotRecorded(f"The safety limit cannot be released now: {type(error).__name__}.") from error


def _store(by: str, queue: QueueRef, _key: str) -> str:
    row = _let_go(REDIS_PAUSE, SafetyLimitScope(queue.deployment), "", lambda pause, at: pause.released(at, by))
    return " ".join(row.value.words(database_clock.now()))


def _breaker(_by: str, queue: QueueRef, key: str) -> str:
    row = _let_go(BREAKER, SafetyLimitScope.of(queue), key, lambda breaker, _: breaker.released())
    return row.value.words(database_clock.now())


def _past(_by: str, queue: QueueRef, key: str) -> str:
    row = _let_go(RETRY_HISTORY, SafetyLimitScope.of(queue), key, lambda past, _: RetryHistory())
    return f"Auto-retried {row.value.made:,} times."


def _quarantine(by: str, queue: QueueRef, key: str) -> str:
    """Releases a job from quarantine: what was proven until now no longer counts, as if the job were new."""
    at = database_clock.now()
    count = incidents.orphan_counts_by_key(queue, [key], at).get(key, 0)
    if not count:
        raise Missing("It was not orphaned recently, or was released already.")
    swap_one(QUARANTINE_RELEASE, SafetyLimitScope.of(queue), lambda _, __: QuarantineRelease(at, by), key)
    return f"Orphaned {count:,} times."


def _let_go(kind: SafetyLimitKind[T], place: SafetyLimitScope, key: str, change: Change[T]) -> SafetyLimitRow[T]:
    """Changes the row of a safety limit; returns the row as it was. Raises Missing."""
    row = limit_rows.read_row(kind, place, key)
    if row.version is None:
        raise Missing(_GONE)
    swap_one(kind, place, change, key)
    return row


_RELEASES: Mapping[str, Callable[[str, QueueRef, str], str]] = {
    REDIS_PAUSE.name: _store,
    BREAKER.name: _breaker,
    RETRY_HISTORY.name: _past,
    QUARANTINE: _quarantine,
}
