"""Finds where a job really is: which list or sorted set holds its id.

The places are asked in the order of a job's life, in one batch. A job that moves on meanwhile is then seen at least
once, perhaps twice, and the later place is the newer truth. A job that moves back (retried, recovered) can slip
through; so when no place has it, all are asked again. No MULTI: it would not hold over the nodes of a cluster, and
would make the server do all of it in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, Wire
from recovery.backends.shared import decode
from recovery.backends.shared.layout import Place, Scene
from recovery.domain.jobs import State

# A list is searched from the end where the oldest are, a million deep: 9 ms of the server's time.
DEPTH = 1_000_000
_LOOKS = 3
# Without LPOS (Redis < 6.0.6) lists are read in windows, and not as far: each is sent over the wire.
_WINDOW = 1000
_WINDOWS = 100


class Whereabouts(NamedTuple):
    """Location of a job; `score` is its place in a sorted set."""

    state: State = State.UNKNOWN
    score: float | None = None


def find(wire: Wire, scene: Scene, id: bytes) -> Whereabouts:
    """Finds a job, in sorted sets first: they answer in O(log n), and most jobs that a person opens are finished."""
    sets = [place for place in scene.layout.places if not place.is_list]
    found = located(sets, wire.call([ask(scene, place, id) for place in sets]))
    for _ in range(_LOOKS):
        if found.state is not State.UNKNOWN:
            break
        found = _everywhere(wire, scene, id)
    return found


def ask(scene: Scene, place: Place, id: bytes, depth: int = DEPTH) -> Command:
    key = place.key(scene.keys)
    return (b"LPOS", key, id, b"RANK", -1, b"MAXLEN", depth) if place.is_list else (b"ZSCORE", key, id)


def located(places: Sequence[Place], replies: Sequence[Any]) -> Whereabouts:
    """Returns the last place of a job's life that has it."""
    for place, reply in reversed(list(zip(places, replies, strict=True))):
        if reply is not None and not isinstance(reply, Exception):
            return Whereabouts(place.state, None if place.is_list else decode.score(reply))
    return Whereabouts()


def _everywhere(wire: Wire, scene: Scene, id: bytes) -> Whereabouts:
    places = scene.layout.places
    replies = wire.call([ask(scene, place, id) for place in places])
    if any(place.is_list and _is_unknown_command(reply) for place, reply in zip(places, replies, strict=True)):
        replies = [
            _walk(wire, scene, place, id) if place.is_list else reply
            for place, reply in zip(places, replies, strict=True)
        ]
    return located(places, replies)


def _is_unknown_command(reply: Any) -> bool:
    """Returns True if the server is too old for LPOS, or its ACL does not grant it: LRANGE may do."""
    refusal = decode.refusal(reply)
    return "unknown command" in refusal or "NOPERM" in refusal or "no permissions" in refusal


def _walk(wire: Wire, scene: Scene, place: Place, id: bytes) -> int | None:
    """Returns the index of an id, searched window by window from the tail."""
    key = place.key(scene.keys)
    for number in range(_WINDOWS):
        last = number * _WINDOW
        (reply,) = wire.call([(b"LRANGE", key, -(last + _WINDOW), -(last + 1))])
        ids = decode.items(reply)
        if id in ids:
            return last + ids.index(id)
        if len(ids) < _WINDOW:
            return None
    return None
