"""Announces and reads the consoles that watch a Redis, in a few small keys beside its queues."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from recovery.domain.identifiers import decode_name, encode_name
from recovery.domain.scheduler import consoles
from recovery.domain.scheduler.consoles import Console
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.scripts import Part, script

# Beside the fences, so that nothing more is to be granted, and in one slot of a cluster.
_NAMES = b"unstall:fence:{consoles}"  # string: the installations, by whose keys they are found
_ACTS = _NAMES + b":acts"  # string that ends with the console's life: the installation that acts
_ANNOUNCE = Path(__file__).parent / "lua" / "tell" / "announce-console.lua"
_LIMIT = 100  # of those that are read: more would be no consoles


def announce(wire: StoreClient, me: Console) -> tuple[Console, ...]:
    """Announces this console and returns all that are there, itself first. Raises StoreError, redis.ResponseError."""
    said = f"{me.host} {me.pid} {me.since}"
    keys = (_NAMES, _ACTS, _key(encode_name(me.installation)))
    args: tuple[Part, ...] = (me.installation, said, consoles.LIFE)
    acts, _me, *names = script(_ANNOUNCE).run(wire, keys, args)
    others = _said(wire, names)
    if gone := [name for name in names if name not in others]:
        acts, *_ = script(_ANNOUNCE).run(wire, keys, [*args, *gone])
    told = {encode_name(me.installation): encode_name(said)} | others
    return tuple(_consoles(me.deployment, told, acts))


def read(wire: StoreClient) -> tuple[Console, ...]:
    """Returns the consoles without writing anything. Raises StoreError and redis.ResponseError."""
    names, acts = _answers(wire, [("GET", _NAMES), ("GET", _ACTS)])
    return tuple(_consoles(wire.deployment.name, _said(wire, (names or b"").split()), acts))


def _said(wire: StoreClient, names: Sequence[bytes]) -> dict[bytes, bytes]:
    """Returns the announcements that have not expired."""
    some = names[:_LIMIT]
    replies = _answers(wire, [("GET", _key(name)) for name in some]) if some else []
    return {name: said for name, said in zip(some, replies, strict=True) if said}


def _answers(wire: StoreClient, commands: Sequence[tuple[str, bytes]]) -> list[Any]:
    replies = wire.call(commands)
    for reply in replies:
        if isinstance(reply, Exception):
            raise reply
    return replies


def _key(installation: bytes) -> bytes:
    return _NAMES + b":" + installation


def _consoles(deployment: str, told: Mapping[bytes, bytes], acts: bytes | None) -> Iterator[Console]:
    for name, said in told.items():
        try:
            host, pid, since = decode_name(said).split(" ")
            yield Console(deployment, decode_name(name), host, int(pid), int(since), name == acts)
        except ValueError:
            continue  # what another version wrote
