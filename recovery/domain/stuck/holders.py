"""Determines whether a job's lock holder is still there, as far as connections and locks tell.

No key links a lock to a connection. A named worker writes its name into the job and into its connection; but the name
is never taken out of the job again, so beside unnamed workers it says nothing. A worker whose name Redis cannot take (a
space, a character that is not plain) is connected without one.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from recovery.domain.jobs import JobRow
from recovery.domain.stuck.context import LocklessObservation, VerdictContext, WorkerChange

NEWS = 15_000  # ms: three looks; what was seen first so lately is as busy now as it was then
_SLACK = 2_000  # ms between a worker's going and our look that noticed it

GONE_FOR = 1_500  # ms that a worker has to be seen gone: both libraries reconnect a cut connection within a second


class HolderPresence(Enum):
    HERE = "here"
    GONE = "gone"
    UNKNOWN = "unknown"


def holder_presence(row: JobRow, around: VerdictContext) -> HolderPresence:
    """Returns whether the holder of a job's lock, or its last one, is still connected."""
    is_empty = around.nobody_is_here
    if is_empty is None:
        return HolderPresence.UNKNOWN
    if is_empty:
        return HolderPresence.UNKNOWN if _is_renewed(row, around, around.left[-1:]) else HolderPresence.GONE
    if not row.worker or around.unnamed or not _is_sayable(row.worker):
        return HolderPresence.UNKNOWN
    if row.worker in around.names:
        return HolderPresence.HERE
    return (
        HolderPresence.UNKNOWN if _is_renewed(row, around, departures(row.worker, around)[-1:]) else HolderPresence.GONE
    )


def holder_server(row: JobRow, around: VerdictContext) -> str:
    """Returns the server that its holder is or was last connected from, else the host; "" when it is unknown."""
    is_named = bool(row.worker) and not around.unnamed
    gone = departures(row.worker, around) if is_named else ()
    if is_named and (host := around.hosts.get(row.worker) or (gone[-1].host if gone else "")):
        return host
    known = set() if is_named and not around.nobody_is_here else _possible(row, around)
    return known.pop() if len(known) == 1 else ""


def with_holder_server(row: JobRow, around: VerdictContext, sighting: LocklessObservation) -> VerdictContext:
    """Returns the context with the server of this job's holder, and its CPU when the job was first seen lost.

    The CPU now tells nothing of a job that was lost long ago.
    """
    found = holder_server(row, around)
    if around.server or not found:
        return around
    is_news = around.now - sighting.since <= NEWS
    cpu = sighting.cpu if sighting.cpu is not None or not is_news else around.loads.get(found)
    return replace(around, server=found, cpu=cpu)


def _possible(row: JobRow, around: VerdictContext) -> set[str]:
    """Returns every place its holder may be at. For a job without a lock whose start was not seen, it may be any."""
    left = {change.host for change in around.left}
    if around.nobody_is_here:
        return left
    here = set(around.hosts.values())
    if row.lock is not None:
        return here
    return here | left if around.knows_all_since(row.processed_at) else set()


def departures(name: str, around: VerdictContext) -> tuple[WorkerChange, ...]:
    return tuple(change for change in around.left if change.name == name)


def gone_for(row: JobRow, around: VerdictContext) -> int | None:
    """Returns how long its named worker had been gone when connections were listed last; None: not known."""
    if not row.worker or around.unnamed or row.worker in around.names:
        return None
    gone = departures(row.worker, around)
    listed_at = around.now if around.listed_at is None else around.listed_at
    return listed_at - gone[-1].at if gone else None


def renewed_at(row: JobRow, around: VerdictContext) -> int | None:
    """Returns when its lock was last renewed, at the latest; None when it has none, or its length is not known."""
    if row.lock is None or row.lock.ttl is None or not around.lock_length:
        return None
    return around.now - max(0, around.lock_length - row.lock.ttl)


def _is_renewed(row: JobRow, around: VerdictContext, last: tuple[WorkerChange, ...]) -> bool:
    """Returns True if the lock was renewed after the holder seemed to leave: so it has not left."""
    at = renewed_at(row, around)
    return at is not None and any(at > change.at + _SLACK for change in last)


def _is_sayable(name: str) -> bool:
    """Returns True if CLIENT SETNAME accepts the name."""
    return all("!" <= character <= "~" for character in name)
