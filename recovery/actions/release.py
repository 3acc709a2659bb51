"""Releases a safety limit for an operator: together with its entry in the audit, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.db import Error, transaction

from recovery.actions import audit, reasons
from recovery.actions.swap import Change, swap_one
from recovery.connections import clock
from recovery.domain import redact
from recovery.domain.acting import Actor
from recovery.domain.pardon import Pardon
from recovery.domain.refs import QueueRef, shown
from recovery.domain.retry import Past
from recovery.errors import BadOrder, Forbidden, Missing, NotRecorded
from recovery.reads import brake_rows, incidents
from recovery.reads.brake_rows import BREAKER, PARDON, PAST, STORE, Kind, Place, Row, T

NOTE = "release safety limit"  # the act of the audit's notes
QUARANTINE = "quarantine"
KINDS = (STORE.name, BREAKER.name, PAST.name, QUARANTINE)
_GONE = "There is no such safety limit (any more): it may have been released already."
_BY_LIMIT = 200  # characters


def release(actor: Actor, kind: str, deployment: str, base: str, key: str, reason: str) -> int:  # noqa: PLR0917 -- which one, and why
    """Releases one limit; returns the number of its note. `base` "": the deployment's own; `key` as the lists have it.

    Raises Forbidden, BadOrder, Missing and NotRecorded, each with nothing done.
    """
    if not actor.may_bulk:
        raise Forbidden("Releasing a safety limit needs the permission to act in bulk.")
    reason = reasons.given(reason)
    if kind not in KINDS:
        raise BadOrder(f"There is no safety limit of the kind {shown(kind)}. There are: {', '.join(KINDS)}.")
    queue = QueueRef(deployment, base)
    try:
        with transaction.atomic():
            was = _RELEASES[kind](shown(actor.name)[:_BY_LIMIT], queue, key)
            told = {"kind": kind, "deployment": deployment, "key": key, "was": redact.text(was)}
            return audit.note(actor, NOTE, reason, told, queue if base else None)
    except Error as error:
        raise NotRecorded(f"The safety limit cannot be released now: {type(error).__name__}.") from error


def _store(by: str, queue: QueueRef, _key: str) -> str:
    row = _let_go(STORE, Place(queue.deployment), "", lambda brake, at: brake.released(at, by))
    return " ".join(row.value.words(clock.now()))


def _breaker(_by: str, queue: QueueRef, key: str) -> str:
    row = _let_go(BREAKER, Place.of(queue), key, lambda breaker, _: breaker.released())
    return row.value.words(clock.now())


def _past(_by: str, queue: QueueRef, key: str) -> str:
    row = _let_go(PAST, Place.of(queue), key, lambda past, _: Past())
    return f"Auto-retried {row.value.made:,} times."


def _quarantine(by: str, queue: QueueRef, key: str) -> str:
    """Releases a job from quarantine: what was proven until now no longer counts, as if the job were new."""
    at = clock.now()
    count = incidents.suffered(queue, [key], at).get(key, 0)
    if not count:
        raise Missing("It was not orphaned recently, or was released already.")
    swap_one(PARDON, Place.of(queue), lambda _, __: Pardon(at, by), key)
    return f"Orphaned {count:,} times."


def _let_go(kind: Kind[T], place: Place, key: str, change: Change[T]) -> Row[T]:
    """Changes the row of a safety limit; returns the row as it was. Raises Missing."""
    row = brake_rows.one(kind, place, key)
    if row.version is None:
        raise Missing(_GONE)
    swap_one(kind, place, change, key)
    return row


_RELEASES: Mapping[str, Callable[[str, QueueRef, str], str]] = {
    STORE.name: _store,
    BREAKER.name: _breaker,
    PAST.name: _past,
    QUARANTINE: _quarantine,
}
