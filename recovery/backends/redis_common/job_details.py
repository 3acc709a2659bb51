"""Reads one job: its row with its true state, and everything its hash holds, as far as it fits on a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recovery.backends.base import LOAD_LIMIT, Command, CommandClient
from recovery.backends.redis_common import decode, job_location, job_rows
from recovery.backends.redis_common.layout import QueueContext
from recovery.backends.redis_common.paging import pages
from recovery.backends.redis_common.paging.types import JobIdEntry
from recovery.backends.redis_common.payloads import ByteBudget, lengths
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.identifiers import decode_name
from recovery.domain.jobs import BoundedText, Job, JobRow
from recovery.errors import JobMissing

# A job hash has about twenty fields. One with more was not written by a library, and is read by the known names.
FIELD_LIMIT = 200
NAME_BYTES = 1024  # of a field: one with a longer name is not shown
FIELDS_AT_ONCE = 8  # of the longest allowed; a page has room for no more
# In the order in which the page's bytes are spent.
_FIRST = (b"data", b"opts", b"failedReason", b"returnvalue", b"stacktrace")
_KNOWN = (*_FIRST, *job_rows.TEXTS[2:], *job_rows.NUMBERS, b"name", b"parent", b"deid", b"defa", b"retriedOn")
_SUFFIXES = (b"dependencies", b"processed", b"failed", b"unsuccessful")


def row(wire: CommandClient, context: QueueContext, id: bytes) -> JobRow:
    """Returns the row as it is, after at most three reads of a job that moves between them."""
    found = _look(wire, context, id)
    for _ in range(2):
        if found is not None:
            break
        found = _look(wire, context, id)
    if found is None:
        raise JobMissing(f"{context.ref.job(decode_name(id)).label} is not in {context.ref.label} any more.")
    return found


def _look(wire: CommandClient, context: QueueContext, id: bytes) -> JobRow | None:
    """Reads the row once; None when it moved meanwhile; raises JobMissing."""
    where = job_location.find(wire, context, id)
    (found,) = job_rows.read(wire, context, where.state, [JobIdEntry(id, where.score)])
    place = context.layout.place(where.state)
    if place is None:
        if found.missing:  # neither a hash, nor in any list after three rounds through all of them
            raise JobMissing(f"{context.ref.job(decode_name(id)).label} is not in {context.ref.label} any more.")
        return found
    settled = pages.drop_moved(wire, context, place, [found])
    return settled[0] if settled else None


def job(wire: CommandClient, context: QueueContext, id: bytes, limit: int) -> Job:
    found = row(wire, context, id)
    shown = _fields(wire, context, id, min(limit, LOAD_LIMIT))
    log_count, *relatives = wire.call([(b"LLEN", context.keys.logs(id)), *_relatives(context, id)])
    nothing = BoundedText("", 0)
    return Job(
        row=found,
        data=shown.get(b"data", nothing),
        options=shown.get(b"opts", nothing),
        result=shown.get(b"returnvalue", nothing),
        reason=_written(shown, b"failedReason"),
        stack=_stack(_written(shown, b"stacktrace")),
        fields=tuple((decode_name(name), value) for name, value in sorted(shown.items())),
        log_count=decode.count(log_count),
        dedup=_written(shown, b"deid"),
        deferred_failure=_written(shown, b"defa"),
        has_children=any(decode.count(reply) for reply in relatives),
    )


def _fields(wire: CommandClient, context: QueueContext, id: bytes, limit: int) -> dict[bytes, BoundedText]:
    """Returns every field by name; those that are too long with their size only."""
    key = context.keys.job(id)
    names = _names(wire, context, key)
    sizes = wire.call(lengths(key, names)) if names else []
    affordable = tuple(ByteBudget(min(LOAD_LIMIT, FIELDS_AT_ONCE * limit), limit).affordable(names, sizes))
    values = wire.call([(b"HGET", key, name) for name in affordable]) if affordable else ()
    texts = dict(zip(affordable, values, strict=True))
    return {name: _text(texts.get(name), size) for name, size in zip(names, sizes, strict=True)}


def _names(wire: CommandClient, context: QueueContext, key: bytes) -> tuple[bytes, ...]:
    (size,) = wire.call([(b"HLEN", key)])
    if not decode.is_wrong_type(size):  # then the row says that the job is gone
        raise_if_refused(size, context.ref, b"HLEN")
    if not decode.count(size):
        return ()
    present = decode.items(wire.call([(b"HKEYS", key)])[0]) if size <= FIELD_LIMIT else list(_KNOWN)
    present = [name for name in present if len(name) <= NAME_BYTES]
    return tuple(sorted(present, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST)))


def _text(value: Any, size: Any) -> BoundedText:
    """Returns a text with its size; it may have grown since its length was asked."""
    raw = decode.octets(value)
    return BoundedText("", decode.count(size) or 0) if raw is None else BoundedText(decode.prose(raw), len(raw))


def _written(shown: Mapping[bytes, BoundedText], name: bytes) -> str:
    """Returns a text field in full, or what stands in its place."""
    value = shown.get(name)
    if value is None:
        return ""
    return value.value if value.value or not value.size else decode.too_long(value.size)


def _stack(written: str) -> tuple[str, ...]:
    """Returns one entry an attempt. What is no JSON array of texts is shown as it stands."""
    value = decode.from_json(written)
    if not isinstance(value, list):
        return (written,) if written else ()
    try:
        return tuple(entry if isinstance(entry, str) else repr(entry) for entry in value)
    except RecursionError:  # what could just be read is too deep to be written again
        return (written,)


def _relatives(context: QueueContext, id: bytes) -> tuple[Command, ...]:
    suffixes = _SUFFIXES if context.layout.has_families else ()
    return tuple((b"EXISTS", context.keys.named(id + b":" + suffix)) for suffix in suffixes)
