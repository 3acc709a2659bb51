"""Reads what became of jobs that are not where they were: light enough to be asked of thousands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef, decode_name, encode_name

EVENTS = 1_000  # of a queue's event stream, newest first: what a look's worth of a busy queue writes
_TELLING = frozenset({b"stalled", b"completed", b"failed"})
_NUMBERS = (b"timestamp", b"processedOn", b"ats", b"atm", b"attemptsMade", b"stc", b"stalledCounter")
_WIDTH = 4


class JobOutcome(NamedTuple):
    """State of a job now. `is_locked` None: we may not look. `ttl`: what is left of its lock (ms)."""

    is_there: bool
    is_finished: bool
    is_locked: bool | None
    processed_at: int | None
    starts: int | None
    attempts: int
    stalls: int
    ttl: int | None = None


def endings(wire: CommandClient, ref: QueueRef, ids: Sequence[str]) -> list[JobOutcome | None]:
    """Reads the state of each job; None: it could not be read. Each costs O(log n)."""
    keys = Keys(ref.base)
    replies = wire.call([command for id in ids for command in _ask(keys, encode_name(id))]) if ids else []
    return [_ending(replies[at : at + _WIDTH]) for at in range(0, len(replies), _WIDTH)]


def still_active(wire: CommandClient, ref: QueueRef, ids: Sequence[str], depth: int = 100_000) -> set[str]:
    """Returns those that are active: for a few. LPOS costs 1 ms at that depth. Where it is refused, all count as so."""
    key = Keys(ref.base).active
    replies = wire.call([(b"LPOS", key, encode_name(id), b"RANK", -1, b"MAXLEN", depth) for id in ids]) if ids else []
    return {id for id, reply in zip(ids, replies, strict=True) if reply is not None}


def events(wire: CommandClient, ref: QueueRef, since: int) -> dict[str, set[str]]:
    """Reads from BullMQ's event stream what happened to which job since then: for jobs that were removed meanwhile."""
    key = Keys(ref.base).events
    (reply,) = wire.call([(b"XREVRANGE", key, b"+", b"%d" % since, b"COUNT", EVENTS)])
    told: dict[str, set[str]] = {}
    for entry in reply if isinstance(reply, list) else ():
        fields = dict(decode.pairs(entry[1]))
        event, job = decode.octets(fields.get(b"event")), decode.octets(fields.get(b"jobId"))
        if event in _TELLING and job is not None:
            told.setdefault(decode_name(job), set()).add(decode_name(event))
    return told


def _ask(keys: Keys, id: bytes) -> tuple[Command, ...]:
    return (
        (b"HMGET", keys.job(id), *_NUMBERS),
        (b"PTTL", keys.lock(id)),
        (b"ZSCORE", keys.completed, id),
        (b"ZSCORE", keys.failed, id),
    )


def _ending(replies: Sequence[Any]) -> JobOutcome | None:
    numbers, ttl, completed, failed = replies
    if isinstance(numbers, Exception) and not decode.is_wrong_type(numbers):
        return None
    added, processed, starts, made, old_made, stalls, old_stalls = decode.fields(numbers, len(_NUMBERS))
    left = decode.count(ttl)
    return JobOutcome(
        is_there=added is not None,
        is_finished=decode.score(completed) is not None or decode.score(failed) is not None,
        is_locked=None if left is None else left != -2,
        processed_at=decode.moment(processed),
        starts=decode.integer(starts),
        attempts=decode.integer(made if made is not None else old_made) or 0,
        stalls=decode.integer(stalls if stalls is not None else old_stalls) or 0,
        ttl=left if left is not None and left >= 0 else None,
    )
