"""Deletes every key of one drill, and no other, in small slices, so that other clients need not wait."""

from __future__ import annotations

import re
import time
from typing import Any

from recovery.backends import client_list
from recovery.domain.drills.plan import is_drill
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.errors import StoreError
from recovery.stores.redis.client import Command, StoreClient

COUNT = 1000  # keys a SCAN call visits: 1 ms of the server at worst
BATCH = 100  # keys a call removes; UNLINK frees them in the background
PASSES = 5  # a command that a dying worker has sent may be executed after the first
LEAVING = 5.0  # seconds for the connections of dead workers to be closed
PAUSE = 0.1  # seconds between two reads of the client list

_GLOB = re.compile(rb"([*?\[\]\\^-])")


def sweep(wire: StoreClient, base: str) -> int:
    """Deletes the keys; returns how many. Raises StoreError, and ValueError for a base that no drill has."""
    if not is_drill(base):
        raise ValueError(f"not a drill's: {base!r}")
    _until_left(wire, base)
    removed = 0
    for _ in range(PASSES):
        found = _pass(wire, encode_name(base) + b":")
        removed += found
        if not found:
            break
    return removed


def _until_left(wire: StoreClient, base: str) -> None:
    """Waits until the workers are disconnected: a dying one may still write. If CLIENT LIST is refused, the passes have
    to do.
    """
    ends, ref = time.monotonic() + LEAVING, QueueRef("", base)
    while time.monotonic() < ends:
        listings = wire.each_node((b"CLIENT", b"LIST")).values()
        if not any(client_list.parse(listing, [ref]) for listing in listings if isinstance(listing, bytes)):
            return
        time.sleep(PAUSE)


def _pass(wire: StoreClient, head: bytes) -> int:
    node, cursor, removed = wire.nodes()[0], b"0", 0
    pattern = _GLOB.sub(rb"\\\1", head) + b"*"
    while True:
        started = time.monotonic()
        cursor, keys = _one(wire, node, (b"SCAN", cursor, b"MATCH", pattern, b"COUNT", COUNT))
        own = [key for key in keys if key.startswith(head)]
        for at in range(0, len(own), BATCH):
            _one(wire, node, (b"UNLINK", *own[at : at + BATCH]))
        removed += len(own)
        if cursor == b"0":
            return removed
        time.sleep(time.monotonic() - started)  # half of the server's time at most


def _one(wire: StoreClient, node: str, command: Command) -> Any:
    reply = wire.at(node, [command])[0]
    if isinstance(reply, Exception):
        raise StoreError(wire.target, str(reply))
    return reply
