"""Scans the keyspace of one deployment in the background: SCAN in slices, so that no client waits, and never KEYS.

Two passes over each master: strings named `…:id` and hashes named `…:meta`. Every queue has at least one of them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from recovery.backends.base import Command
from recovery.domain.identifiers import decode_name, encode_name
from recovery.scanners.discovery.namespace_quota import NamespaceQuota
from recovery.stores.redis.client import StoreClient
from recovery.stores.redis.reply_limits import OversizedReply

COUNT = 1000  # keys a call looks at: 1 ms of the server at worst; 10,000 would be 7 ms
SLICE = 0.05  # seconds of calls in a row
NAME_BYTES = 1_024  # of a base: a longer name is no queue's, and would fill pages and memory
CANDIDATES = 20_000  # kept at most: a keyspace may hold millions of keys that end in `:id` and belong to no queue

_GLOB = re.compile(rb"([*?\[\]\\^-])")
_RELAY = b"::relay:"  # BullMQ ≥ 6.4 keeps messages there: not a queue


@dataclass(frozen=True, slots=True)
class _Kind:
    suffix: bytes
    type: bytes


_KINDS = (_Kind(b":id", b"string"), _Kind(b":meta", b"hash"))


class KeyspaceScan:
    """SCAN of one deployment; it keeps its cursors between slices."""

    def __init__(self, prefixes: Sequence[str] = ()) -> None:
        self._prefixes = tuple(encode_name(prefix) for prefix in prefixes)
        self._by_type = True  # Redis ≥ 6
        self._todo: list[_Kind] = []
        self._cursors: dict[str, bytes] = {}
        self.found: set[str] = set()
        self._share = NamespaceQuota(CANDIDATES)
        self.spent = 0.0  # seconds of calls in this pass
        self.is_cut = False  # more candidates than are kept
        self.refusal = ""  # why this deployment cannot be searched
        self._count = COUNT

    @property
    def is_under_way(self) -> bool:
        return bool(self._todo)

    def begin(self) -> None:
        self._todo = list(_KINDS)
        self._cursors = {}
        self.found = set()
        self._share = NamespaceQuota(CANDIDATES)
        self.spent = 0.0
        self.is_cut = False

    def abandon(self) -> None:
        self._todo = []

    def slice(self, wire: StoreClient) -> None:
        """Continues the SCAN for SLICE seconds; raises StoreError."""
        started = time.monotonic()
        while self._todo and time.monotonic() - started < SLICE:
            self._step(wire, self._todo[0])
        self.spent += time.monotonic() - started

    def _step(self, wire: StoreClient, kind: _Kind) -> None:
        """Sends one SCAN to each master that is not done."""
        replies = {node: self._without_names(reply) for node, reply in self._ask(wire, kind).items()}
        if None in replies.values():
            self._count = max(1, self._count // 10)  # the same again, in smaller steps
            return
        self._count = min(COUNT, self._count * 2)
        refusals = [reply for reply in replies.values() if isinstance(reply, Exception)]
        if refusals:
            self._refused(refusals[0])
            return
        for node, (cursor, keys) in replies.items():
            self._cursors[node] = cursor
            self._find(keys, kind)
        if all(cursor == b"0" for cursor in self._cursors.values()):
            self._todo.pop(0)
            self._cursors = {}

    def _without_names(self, reply: Any) -> Any:
        """Keeps only the cursor of an answer with too long names; None if it has to be repeated in smaller steps."""
        if not isinstance(reply, OversizedReply) or reply.cursor is None:
            return reply
        return (reply.cursor, ()) if self._count == 1 else None

    def _ask(self, wire: StoreClient, kind: _Kind) -> dict[str, Any]:
        cursors = self._cursors or dict.fromkeys(wire.nodes(), b"0")
        fresh = not self._cursors
        return {
            node: wire.at(node, [self._command(kind, cursor)])[0]
            for node, cursor in cursors.items()
            if fresh or cursor != b"0"
        }

    def _command(self, kind: _Kind, cursor: bytes) -> Command:
        only = (b"TYPE", kind.type) if self._by_type else ()
        return (b"SCAN", cursor, b"MATCH", self._pattern(kind), b"COUNT", self._count, *only)

    def _pattern(self, kind: _Kind) -> bytes:
        """Returns the MATCH pattern; several prefixes are filtered here: a SCAN for each would cost as much as one."""
        head = escape_glob(self._prefixes[0]) + b":" if len(self._prefixes) == 1 else b""
        return head + b"*" + kind.suffix

    def _refused(self, reply: Exception) -> None:
        """Restarts without TYPE where an old Redis does not know it; any other refusal, as by an ACL, ends the SCAN."""
        if self._by_type and "syntax" in str(reply).lower():
            self._by_type = False
            self._cursors = {}
        else:
            self.refusal = str(reply)
            self._todo = []

    def _find(self, keys: Iterable[bytes], kind: _Kind) -> None:
        for key in keys:
            base = key.removesuffix(kind.suffix)
            if base and base != key and len(base) <= NAME_BYTES and _RELAY not in key and self.wants(base):
                self._hold(decode_name(base))

    def _hold(self, base: str) -> None:
        if base in self.found:
            return
        gone = self._share.add(base)
        self.is_cut = self.is_cut or gone is not None
        if gone != base:
            self.found.add(base)
            self.found.discard(gone or "")

    def wants(self, base: bytes) -> bool:
        """Returns True if the base has one of the prefixes to which the search is limited."""
        return not self._prefixes or any(base.startswith(prefix + b":") for prefix in self._prefixes)


def escape_glob(prefix: bytes) -> bytes:
    """Escapes a prefix for MATCH."""
    return _GLOB.sub(rb"\\\1", prefix)
