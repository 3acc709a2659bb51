"""Known queues: discovery writes them, the collector reads them, the state store keeps them over a restart."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from threading import Lock
from typing import cast

import redis

from recovery import signing
from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

_PURPOSE = "known queue"
_FRESH = 5 * 60_000  # ms that a remembered "last seen" may lag: not worth a write each minute


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """A queue as discovery last saw it."""

    ref: QueueRef
    flavour: LibraryVersion
    first_seen: int
    last_seen: int
    is_configured: bool = False  # listed even when nothing of it is in Redis yet


@dataclass(frozen=True, slots=True)
class QueueListing:
    """All known queues of one deployment. `version` changes when a queue or its library version does."""

    version: int = 0
    queues: tuple[KnownQueue, ...] = ()
    left_out: int = 0  # found, but beyond the limit
    trouble: str = ""  # why the keyspace could not be searched


class KnownQueues:
    """Known queues, shared by the scanners of one process; a reader always gets a complete listing."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._listings: dict[str, QueueListing] = {}
        self._hints: dict[str, frozenset[str]] = {}
        self._stored: dict[QueueRef, KnownQueue] = {}

    def listing(self, deployment: str) -> QueueListing:
        return self._listings.get(deployment, QueueListing())

    def replace(self, deployment: str, queues: Iterable[KnownQueue], *, left_out: int = 0, trouble: str = "") -> None:
        ordered = tuple(sorted(queues, key=lambda known: known.ref.base))
        with self._lock:
            before = self.listing(deployment)
            same = [(known.ref, known.flavour) for known in before.queues] == [
                (known.ref, known.flavour) for known in ordered
            ]
            self._listings[deployment] = QueueListing(before.version + (not same), ordered, left_out, trouble)

    def hint(self, deployment: str, bases: Iterable[str]) -> None:
        """Notes queues that have connected workers, so that discovery soon identifies those that are unknown."""
        self._hints[deployment] = frozenset(bases)

    def hints(self, deployment: str) -> frozenset[str]:
        return self._hints.get(deployment, frozenset())

    # -- the state store

    def load(self, store: redis.Redis, deployment: str) -> None:
        """Loads what an earlier process knew, so that a restart shows all queues at once; raises StoreError."""
        with redis_errors.guarded(store):
            rows = cast("dict[bytes, bytes]", store.hgetall(state_keys.discovered_queues(deployment)))
        queues = [known for base, row in rows.items() if (known := _known(deployment, base, row))]
        self._stored.update((known.ref, known) for known in queues)
        self.replace(deployment, queues)

    def save(self, store: redis.Redis, deployment: str) -> None:
        """Writes what changed since the last time; raises StoreError."""
        listing = self.listing(deployment)
        refs = {known.ref for known in listing.queues}
        gone = [ref for ref in self._stored if ref.deployment == deployment and ref not in refs]
        news = [known for known in listing.queues if self._is_news(known)]
        if not gone and not news:
            return
        with redis_errors.guarded(store):
            pipeline = store.pipeline(transaction=False)
            if gone:
                pipeline.hdel(state_keys.discovered_queues(deployment), *(encode_name(ref.base) for ref in gone))
            if news:
                pipeline.hset(
                    state_keys.discovered_queues(deployment),
                    mapping={encode_name(known.ref.base): _row(known) for known in news},
                )
            pipeline.execute()
        self._stored.update((known.ref, known) for known in news)
        for ref in gone:
            del self._stored[ref]

    def _is_news(self, known: KnownQueue) -> bool:
        stored = self._stored.get(known.ref)
        if stored is None or known.last_seen - stored.last_seen > _FRESH:
            return True
        return replace(stored, last_seen=known.last_seen) != known


def _row(known: KnownQueue) -> bytes:
    """Encodes and signs a known queue: until discovery runs again, its library decides how the queue is changed."""
    written = json.dumps([known.flavour, known.first_seen, known.last_seen, known.is_configured], separators=(",", ":"))
    return signing.seal(_PURPOSE, written.encode("ascii"), known.ref.deployment, known.ref.base)


def _known(deployment: str, base: bytes, row: bytes) -> KnownQueue | None:
    """Decodes a known queue; None if another version or program wrote it: discovery will find that queue again."""
    written = signing.unseal(_PURPOSE, row, deployment, decode_name(base))
    if written is None:
        return None
    try:
        (library, major, version, evidence, *rest), first_seen, last_seen, is_configured = json.loads(written)
        flavour = LibraryVersion(QueueLibrary(library), major, version, tuple(evidence), *rest)
        return KnownQueue(
            QueueRef(deployment, decode_name(base)), flavour, int(first_seen), int(last_seen), bool(is_configured)
        )
    except (ValueError, TypeError):
        return None
