"""Finds where a job really is: which list or sorted set holds its id.

The places are asked in the order of a job's life, in one batch. A job that moves on meanwhile is then seen at least
once, perhaps twice, and the later place is the newer truth. A job that moves back (retried, recovered) can slip
through; so when no place has it, all are asked again. No MULTI: it would not hold over the nodes of a cluster, and
would make the server do all of it in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.domain.jobs import JobState

# A list is searched from the end where the oldest are, a million deep: 9 ms of the server's time.
DEPTH = 1_000_000
_LOOKS = 3
# Without LPOS (Redis < 6.0.6) lists are read in windows, and not as far: each is sent over the wire.
_WINDOW = 1000
_WINDOWS = 100


class JobLocation(NamedTuple):
    """Location of a job; `score` is its place in a sorted set."""

    state: JobState = JobState.UNKNOWN
    score: float | None = None


def find(wire: CommandClient, context: QueueContext, id: bytes) -> JobLocation:
    """Finds a job, in sorted sets first: they answer in O(log n), and most jobs that a person opens are finished."""
    sets = [place for place in context.layout.places if not place.is_list]
    found = location_from(sets, wire.call([ask(context, place, id) for place in sets]))
    for _ in range(_LOOKS):
        if found.state is not JobState.UNKNOWN:
            break
        found = _everywhere(wire, context, id)
    return found


def ask(context: QueueContext, place: StatePlace, id: bytes, depth: int = DEPTH) -> Command:
    key = place.key(context.keys)
    return (b"LPOS", key, id, b"RANK", -1, b"MAXLEN", depth) if place.is_list else (b"ZSCORE", key, id)


def location_from(places: Sequence[StatePlace], replies: Sequence[Any]) -> JobLocation:
    """Returns the last place of a job's life that has it."""
    for place, reply in reversed(list(zip(places, replies, strict=True))):
        if reply is not None and not isinstance(reply, Exception):
            return JobLocation(place.state, None if place.is_list else decode.score(reply))
    return JobLocation()


def _everywhere(wire: CommandClient, context: QueueContext, id: bytes) -> JobLocation:
    places = context.layout.places
    replies = wire.call([ask(context, place, id) for place in places])
    if any(place.is_list and _is_unknown_command(reply) for place, reply in zip(places, replies, strict=True)):
        replies = [
            _walk(wire, context, place, id) if place.is_list else reply
            for place, reply in zip(places, replies, strict=True)
        ]
    return location_from(places, replies)


def _is_unknown_command(reply: Any) -> bool:
    """Returns True if the server is too old for LPOS, or its ACL does not grant it: LRANGE may do."""
    refusal = decode.refusal(reply)
    return "unknown command" in refusal or "NOPERM" in refusal or "no permissions" in refusal


def _walk(wire: CommandClient, context: QueueContext, place: StatePlace, id: bytes) -> int | None:
    """Returns the index of an id, searched window by window from the tail."""
    key = place.key(context.keys)
    for number in range(_WINDOWS):
        last = number * _WINDOW
        (reply,) = wire.call([(b"LRANGE", key, -(last + _WINDOW), -(last + 1))])
        ids = decode.items(reply)
        if id in ids:
            return last + ids.index(id)
        if len(ids) < _WINDOW:
            return None
    return None
