"""Whether a job's holder is still there, as far as connections and locks tell.

No key links a lock to a connection. A named worker writes its name into the job and into its connection; but the name
is never taken out of the job again, so beside unnamed workers it says nothing. A worker whose name Redis cannot take
(a space, a character that is not plain) is connected without one.
"""

from __future__ import annotations

from enum import Enum

from recovery.domain.jobs import JobRow
from recovery.domain.surroundings import Change, Surroundings

_SLACK = 2_000  # ms between a worker's going and our look that noticed it


class Holder(Enum):
    HERE = "here"
    GONE = "gone"
    UNKNOWN = "unknown"


def holder(row: JobRow, around: Surroundings) -> Holder:
    """Of a job with a lock or without: the last one that had it."""
    is_empty = around.nobody_is_here
    if is_empty is None:
        return Holder.UNKNOWN
    if is_empty:
        return Holder.UNKNOWN if _is_renewed(row, around, around.left[-1:]) else Holder.GONE
    if not row.worker or around.unnamed or not _is_sayable(row.worker):
        return Holder.UNKNOWN
    if row.worker in around.names:
        return Holder.HERE
    return Holder.UNKNOWN if _is_renewed(row, around, departures(row.worker, around)[-1:]) else Holder.GONE


def server(row: JobRow, around: Surroundings) -> str:
    """From where its holder is connected, or was when it was last seen; "" when nobody knows."""
    is_named = bool(row.worker) and not around.unnamed
    gone = departures(row.worker, around) if is_named else ()
    if is_named and (host := around.hosts.get(row.worker) or (gone[-1].host if gone else "")):
        return host
    if around.nobody_is_here:
        known = {change.host for change in around.left}
    else:
        known = set() if is_named or row.lock is None else set(around.hosts.values())
    return known.pop() if len(known) == 1 else ""


def host_of(address: str) -> str:
    """Of an address as CLIENT LIST writes it; "" for a unix socket."""
    host, _, port = address.rpartition(":")
    return host.strip("[]") if port.isdigit() and port != "0" else ""


def departures(name: str, around: Surroundings) -> tuple[Change, ...]:
    return tuple(change for change in around.left if change.name == name)


def renewed_at(row: JobRow, around: Surroundings) -> int | None:
    """When its lock was last renewed, at the latest; None when it has none, or its length is not known."""
    if row.lock is None or row.lock.ttl is None or not around.lock_length:
        return None
    return around.now - max(0, around.lock_length - row.lock.ttl)


def _is_renewed(row: JobRow, around: Surroundings, last: tuple[Change, ...]) -> bool:
    """Somebody renewed the lock after the holder had gone: so it has not."""
    at = renewed_at(row, around)
    return at is not None and any(at > change.at + _SLACK for change in last)


def _is_sayable(name: str) -> bool:
    """What CLIENT SETNAME takes."""
    return all("!" <= character <= "~" for character in name)
