"""Reads n8n's registry of its processes (domain/n8n/instances.py): a set of keys, and a small JSON text in each.

Nothing is written. Sizes are asked first: of the set its members, of each key its length. What is longer than n8n
writes, or of a schema that is not known, is counted and not read. Cost: three round trips, O(processes).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode
from recovery.domain.identifiers import decode_name, encode_name
from recovery.domain.n8n.instances import EXPIRES, SCHEMA, InstanceRegistry, N8nInstance

MEMBERS_LIMIT = 1_000  # processes: no n8n has as many
LENGTH_LIMIT = 4_096  # bytes of one registration: n8n writes some 300
_ID = re.compile(rb"[A-Za-z0-9_-]{1,128}")
_TEXT = 200  # characters of a host, a version or a pool
_TOO_MANY = "n8n's registry has {count:,} members, more than are read."


def read(wire: CommandClient, prefix: str, now: int) -> InstanceRegistry:
    """Raises StoreError when the store does not answer. `now`: by which heartbeats are dated."""
    head = encode_name(f"{prefix}:{{instance:}}")
    (size,) = wire.call([(b"SCARD", head + b"members")])
    count = decode.count(size)
    if count is None:
        return InstanceRegistry(fault=f"n8n's registry cannot be read: {decode.refusal(size) or 'no answer'}")
    if count > MEMBERS_LIMIT:
        return InstanceRegistry(fault=_TOO_MANY.format(count=count))
    if not count:
        return InstanceRegistry()
    (members,) = wire.call([(b"SMEMBERS", head + b"members")])
    if isinstance(members, Exception):
        return InstanceRegistry(fault=f"n8n's registry cannot be read: {decode.refusal(members)}")
    names = [member for member in decode.items(members) if member.startswith(head)]
    keys = [name for name in names if _ID.fullmatch(name[len(head) :])]
    return _read(wire, head, sorted(keys), len(decode.items(members)) - len(keys), now)


def _read(wire: CommandClient, head: bytes, keys: Sequence[bytes], strange: int, now: int) -> InstanceRegistry:
    lengths = wire.call([(b"STRLEN", key) for key in keys]) if keys else []
    short = [key for key, size in zip(keys, lengths, strict=True) if 0 < (decode.count(size) or 0) <= LENGTH_LIMIT]
    there = {key for key, size in zip(keys, lengths, strict=True) if size != 0}
    asked: list[Command] = [command for key in short for command in ((b"PTTL", key), (b"GET", key))]
    replies = wire.call(asked) if asked else []
    found, expired = [], {_id(head, key) for key in keys if key not in there}
    for key, left, written in zip(short, replies[::2], replies[1::2], strict=True):
        if written is None:  # it has ended since
            expired.add(_id(head, key))
        elif instance := _instance(_id(head, key), left, written, now):
            found.append(instance)
    unknown = strange + len(there) - len(found) - sum(_id(head, key) in expired for key in short)
    return InstanceRegistry(tuple(found), frozenset(expired), unknown)


def _id(head: bytes, key: bytes) -> str:
    return decode_name(key[len(head) :])


def _instance(key: str, left: Any, written: Any, now: int) -> N8nInstance | None:
    """Returns the process, or None for what is no known registration. Redis dates a process whose clock is another."""
    told = decode.mapping(written)
    version, beat, began = told.get("version"), _moment(told.get("lastSeen")), _moment(told.get("registeredAt"))
    ttl = decode.remaining(left)
    known = told.get("schemaVersion") == SCHEMA and isinstance(version, str) and told.get("instanceKey") == key
    if not known or beat is None or began is None or ttl is None or ttl > EXPIRES:
        return None
    seen_at = now - (EXPIRES - ttl)
    return N8nInstance(
        key=key,
        type=_short(told.get("instanceType")),
        role=_short(told.get("instanceRole")),
        host=_short(told.get("hostId")),
        version=_short(version),
        registered_at=began + seen_at - beat,
        seen_at=seen_at,
        pool=_short(told.get("poolName")),
    )


def _short(value: Any) -> str:
    return value[:_TEXT] if isinstance(value, str) else ""


def _moment(value: Any) -> int | None:
    return decode.as_moment(int(value)) if isinstance(value, (int, float)) and abs(value) < 1e15 else None
