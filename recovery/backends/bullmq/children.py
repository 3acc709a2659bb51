"""Reads the children of a job: full keys, in four places by how they ended, never more than a page shows."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from recovery.backends.base import CHILD_LIMIT, Command, CommandClient
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.reply_errors import ID_BYTES

# A hash of up to this many children is listed by all its field names, in a steady order. What they returned, which
# may be of any size, is never fetched.
_WHOLE = 1000
_ROUNDS = 10  # SSCAN may come back with few or none


class Children(NamedTuple):
    """Listed children as (key, outcome), and how many there are; None when the store would not say."""

    listed: tuple[tuple[bytes, str], ...] = ()
    total: int | None = 0


def read(wire: CommandClient, keys: BullMQKeys, id: bytes) -> Children:
    """Reads the children, failures first: they are what a person looks for."""
    places: tuple[tuple[str, bytes, bytes, _Listing], ...] = (
        ("unsuccessful", b"ZCARD", keys.unsuccessful(id), _of_sorted_set),
        ("ignored", b"HLEN", keys.ignored(id), _of_hash),
        ("pending", b"SCARD", keys.dependencies(id), _of_set),
        ("processed", b"HLEN", keys.processed(id), _of_hash),
    )
    sizes = [decode.count(reply) for reply in wire.call([(command, key) for _, command, key, _ in places])]
    listed: dict[bytes, str] = {}
    for (outcome, _, key, listing), size in zip(places, sizes, strict=True):
        if size and len(listed) < CHILD_LIMIT:
            for child in listing(wire, key, size):
                if len(child) <= ID_BYTES:
                    listed.setdefault(child, outcome)
    total = None if None in sizes else sum(size or 0 for size in sizes)
    return Children(tuple(islice(listed.items(), CHILD_LIMIT)), total)


_Listing = Callable[[CommandClient, bytes, int], list[bytes]]


def _of_sorted_set(wire: CommandClient, key: bytes, _size: int) -> list[bytes]:
    return _items(wire, (b"ZRANGE", key, 0, CHILD_LIMIT - 1))


def _of_hash(wire: CommandClient, key: bytes, size: int) -> list[bytes]:
    """Returns field names; HSCAN would bring the values along. A random choice stands for a hash of very many."""
    if size <= _WHOLE:
        return _items(wire, (b"HKEYS", key))
    return sorted(_items(wire, (b"HRANDFIELD", key, CHILD_LIMIT)))


def _of_set(wire: CommandClient, key: bytes, _size: int) -> list[bytes]:
    found: dict[bytes, None] = {}
    cursor = b"0"
    for _ in range(_ROUNDS):
        (reply,) = wire.call([(b"SSCAN", key, cursor, b"COUNT", CHILD_LIMIT)])
        if not isinstance(reply, (list, tuple)) or len(reply) != 2:
            break
        found.update(dict.fromkeys(decode.items(reply[1])))
        cursor = decode.octets(reply[0]) or str(decode.integer(reply[0]) or 0).encode()
        if cursor == b"0" or len(found) >= CHILD_LIMIT:
            break
    return list(found)


def _items(wire: CommandClient, command: Command) -> list[bytes]:
    return decode.items(wire.call([command])[0])
