"""Reads a page of a list. Jobs are pushed on the left and popped on the right, so both ends move.

The cursor holds the last id shown. When it is no longer where it was, the list is searched for it near that place.
"""

from __future__ import annotations

from typing import NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging.cursors import ListCursor, offset
from recovery.backends.redis_common.paging.types import IdWindow, JobIdEntry, PageRequest
from recovery.backends.redis_common.reply_errors import check_id_lengths, raise_if_refused
from recovery.domain.jobs import JobState

# How far past its old place an id is looked for: 10,000 steps are 0.4 ms of the server's time.
SLACK = 10_000
# The list moves again between finding the place and reading it: so many ids more are read on both sides, each time.
_MARGINS = (100, 1000)


class _Look(NamedTuple):
    """Result of one read of a list, from `start` on. `is_sure`: a whole page that follows the id shown last."""

    start: int
    ids: list[bytes]
    total: int | None
    is_last: bool
    is_sure: bool


def window(wire: CommandClient, context: QueueContext, place: StatePlace, request: PageRequest) -> IdWindow:
    start = offset(request.cursor)
    look = _look(wire, context, place.key(context.keys), start, request)
    for margin in _MARGINS:
        if look.is_sure:
            break
        start = _found_again(wire, context, place, start, from_tail=request.ascending)
        look = _look(wire, context, place.key(context.keys), start, request._replace(margin=margin))
    return _window(context, look, request.size)


def _look(wire: CommandClient, context: QueueContext, key: bytes, start: ListCursor, request: PageRequest) -> _Look:
    """Reads one id more in front, to know the place again, and one behind, to know whether there is more."""
    first = max(0, start.rows - 1 - request.margin) if start.anchor else start.rows
    count = start.rows - first + request.size + 1 + request.margin
    part = _slice(key, first, count, from_tail=request.ascending)
    length, tail, found = wire.call([(b"LLEN", key), (b"LRANGE", key, -2, -1), part])
    raise_if_refused(found, context.ref, b"LRANGE")
    ids = decode.items(found)
    check_id_lengths(ids, context.ref, key)
    if request.ascending:
        ids.reverse()
    is_known = start.anchor in ids
    skip = ids.index(start.anchor) + 1 if is_known else start.rows - first
    markers = sum(map(context.layout.is_marker, decode.items(tail)))
    total = decode.count(length)
    is_last = len(ids) < count
    is_whole = is_last or len(ids) - skip > request.size
    is_sure = not start.anchor or (is_known and is_whole)
    return _Look(first + skip, ids[skip:], total and total - markers, is_last, is_sure)


def _slice(key: bytes, first: int, count: int, *, from_tail: bool) -> Command:
    if from_tail:
        return b"LRANGE", key, -(first + count), -(first + 1)
    return b"LRANGE", key, first, first + count - 1


def _found_again(
    wire: CommandClient, context: QueueContext, place: StatePlace, start: ListCursor, *, from_tail: bool
) -> ListCursor:
    """Returns where the page starts now. Without LPOS (Redis < 6.0.6) the old offset has to do."""
    key, rank = place.key(context.keys), -1 if from_tail else 1
    length, index = wire.call(
        [(b"LLEN", key), (b"LPOS", key, start.anchor, b"RANK", rank, b"MAXLEN", start.rows + SLACK)]
    )
    if isinstance(index, Exception) or not isinstance(length, int):
        return ListCursor(start.rows)
    if index is not None:
        return ListCursor(length - index if from_tail else index + 1, start.anchor)
    # Workers take from the tail. When the last one shown is gone from there, so are all that stood before it.
    is_taken = from_tail and place.state in (JobState.WAITING, JobState.PAUSED)
    return ListCursor(0 if is_taken else start.rows)


def _window(context: QueueContext, look: _Look, size: int) -> IdWindow:
    start = look.start
    shown = look.ids[:size]
    has_more = len(look.ids) > size or (bool(shown) and not look.is_last)
    return IdWindow(
        tuple(JobIdEntry(id) for id in shown if not context.layout.is_marker(id)),
        look.total,
        str(ListCursor(start + len(shown), shown[-1])) if has_more else "",
        str(ListCursor(max(0, start - size))) if start else "",
        start,
    )
