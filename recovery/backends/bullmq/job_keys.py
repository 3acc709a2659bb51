"""Splits a job's full key (`prefix:queue:id`) into queue and id. All parts may hold colons, so the store is asked.

A queue that ever had a job has a counter, the string `<base>:id`; that tells where the base ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import JobRef, QueueRef, decode_name, encode_name

_COLONS = 12  # looked at in one key; what holds more was not made by a library
_MOST_ASKED = 500  # counters in one go: a hundred children with ids of their own kind


def split(
    wire: CommandClient, own: QueueRef, keys: Sequence[bytes], hints: Mapping[bytes, str] | None = None
) -> dict[bytes, JobRef | None]:
    """Returns each key's job; None for one that fits no queue. `hints`: bases that are known to be right."""
    possible = {key: _bases(key) for key in keys}
    wanted = dict.fromkeys(base for bases in possible.values() for base in bases)
    queues = _queues(wire, list(wanted)[:_MOST_ASKED])
    return {key: _job(own, key, (hints or {}).get(key), bases, queues) for key, bases in possible.items()}


def _bases(key: bytes) -> list[bytes]:
    """Returns every way to cut it, the longest base first. A base holds a colon itself: the one behind its prefix."""
    cuts = [at for at, byte in enumerate(key) if byte == ord(":")][1 : _COLONS + 1]
    return [key[:at] for at in reversed(cuts)]


def _queues(wire: CommandClient, bases: Sequence[bytes]) -> set[bytes]:
    """Returns those that have a counter. TYPE, because a scheduler may be called `id` and is a hash."""
    asked: list[Command] = [(b"TYPE", Keys(decode_name(base)).counter) for base in bases]
    replies = wire.call(asked) if asked else []
    return {base for base, reply in zip(bases, replies, strict=True) if decode.octets(reply) == b"string"}


def _job(own: QueueRef, key: bytes, hint: str | None, bases: Iterable[bytes], queues: set[bytes]) -> JobRef | None:
    """Returns the job in a queue that exists; else in the queue at hand, when the key starts like it."""
    near = encode_name(own.base)
    found = [base for base in bases if base in queues]
    if hint is not None:
        found = [encode_name(hint)]
    elif not found and key.startswith(near + b":"):
        found = [near]
    if not found or not key.startswith(found[0] + b":"):
        return None
    return QueueRef(own.deployment, decode_name(found[0])).job(decode_name(key[len(found[0]) + 1 :]))
