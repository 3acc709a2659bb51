"""Searches one deployment for queues, and remembers between runs what was found."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from recovery.backends import client_list
from recovery.backends.detection import UNREAD, identify
from recovery.config import Deployment
from recovery.domain.drills.plan import is_drill
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.queues.types import LibraryVersion, Worker
from recovery.errors import StoreError
from recovery.scanners.discovery.keyspace_scan import SLICE, KeyspaceScan
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.scanners.discovery.namespace_quota import NamespaceQuota
from recovery.stores.redis.client import StoreClient
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

LIMIT = 10_000  # queues of one deployment: more do not fit on a page, nor into a snapshot every other second
BATCH = 100  # queues identified in one batch: about 2,500 short commands
RECHECK = 1_000  # known queues identified again in one run, the longest unseen first
GONE_MS = 60 * 60_000  # a queue that does not exist for so long is forgotten
REJECT_MS = 10 * 60_000  # a base that was no queue is not checked again for so long
REJECTS = 50_000  # remembered at most
RUN = 10.0  # seconds a run may take; a longer SCAN goes on in the next one
SOON_MS = 5_000  # until the next SCAN, when this one found something or we have just begun
YOUNG_MS = 60_000
# The SCAN takes a third of the server's time at most while no queue is known, and a twentieth later.
_FIRST_REST, _REST = 2, 19
_PREFIX = "bull"  # both libraries' default
_ABSENT = LibraryVersion(
    evidence=("configured; it has no keys in Redis yet",), read_only="This queue has no keys in Redis yet."
)


class QueueSearch:
    """Search of one deployment. For one thread at a time."""

    def __init__(
        self,
        deployment: Deployment,
        registry: ConnectionRegistry,
        roster: KnownQueues,
        *,
        every: int,
        stopping: threading.Event,
    ) -> None:
        self.name = deployment.name
        self._registry = registry
        self._roster = roster
        self._every = every
        self._stopping = stopping
        self._database = deployment.database
        self._configured = frozenset(configured_bases(deployment))
        self._sweep = KeyspaceScan(deployment.prefixes)
        self._has_swept = False
        self._began: int | None = None
        self._look_at = 0
        self._sweep_at = 0
        self._missing: dict[str, int] = {}
        self._rejected: dict[str, int] = {}
        self._left_out: set[str] = set()
        self._share: NamespaceQuota | None = None

    def run(self, now: int) -> bool:
        """Runs what is due; returns False if nothing was. A store that does not answer is asked again in the next run,
        and the snapshot says why.
        """
        self._began = now if self._began is None else self._began
        is_due = now >= self._look_at or bool(self._news(now))
        sweeps = self._sweep.is_under_way or now >= self._sweep_at
        try:
            wire = self._registry.wire(self.name)
            if is_due:
                self._look(wire, now)
                self._look_at = now + self._every
            if sweeps:
                self._go_on(wire, now)
        except StoreError as error:
            self._sweep.abandon()  # its cursors belong to nodes that may be others by then
            log.debug("%s: %s", self.name, error)
        return is_due or sweeps

    # -- names that are known beforehand

    def _news(self, now: int) -> list[str]:
        """Returns queues that have workers and are not listed."""
        return self._unknown(self._roster.hints(self.name), now)

    def _look(self, wire: StoreClient, now: int) -> None:
        """Identifies configured queues, queues of connected workers, and known queues again."""
        listings = [reply for reply in wire.each_node((b"CLIENT", b"LIST")).values() if isinstance(reply, bytes)]
        named = set().union(*(client_list.bases(listing, db=self._database) for listing in listings))
        known = sorted(self._roster.listing(self.name).queues, key=lambda queue: queue.last_seen)
        again = [queue.ref.base for queue in known[:RECHECK]]
        bases = dict.fromkeys([*sorted(self._configured), *self._unknown(named, now), *again])
        self._learn(wire, list(bases), now, listings)

    # -- the sweep

    def _go_on(self, wire: StoreClient, now: int) -> None:
        """Continues the SCAN in slices with rests in between, until it is complete or the run is long enough."""
        if not self._sweep.is_under_way:
            self._sweep.begin()
        ends = time.monotonic() + RUN
        before = self._sweep_size()
        rest = SLICE * (_REST if self._has_swept else _FIRST_REST)
        while self._sweep.is_under_way and time.monotonic() < ends:
            self._sweep.slice(wire)
            self._learn(wire, self._unknown(self._sweep.found, now), now)
            if self._sweep.is_under_way and self._stopping.wait(rest):
                return
        if not self._sweep.is_under_way:
            self._has_swept = True
            is_young = now - (self._began or 0) < YOUNG_MS
            is_lively = self._sweep_size() > before or is_young
            self._sweep_at = now + max(SOON_MS if is_lively else self._every, int(self._sweep.spent * 1000 * _REST))

    def _sweep_size(self) -> int:
        return len(self._roster.listing(self.name).queues)

    # -- what is a queue and what is not

    def _unknown(self, bases: Collection[str], now: int) -> list[str]:
        """Returns bases to be identified: not listed, under a configured prefix, and not rejected a moment ago."""
        if not bases:
            return []
        listed = {queue.ref.base for queue in self._roster.listing(self.name).queues}
        return [
            base
            for base in bases
            if base not in listed
            and not is_drill(base)  # one of our own fire drills
            and base not in self._left_out
            and now - self._rejected.get(base, -REJECT_MS) >= REJECT_MS
            and self._sweep.wants(encode_name(base))
        ]

    def _learn(self, wire: StoreClient, bases: Sequence[str], now: int, listings: Sequence[bytes] = ()) -> None:
        """Identifies these bases and stores the new listing."""
        known = {queue.ref.base: queue for queue in self._roster.listing(self.name).queues}
        self._share = None
        hands = self._hands(bases, listings)
        rest = iter(bases)
        while batch := list(islice(rest, BATCH)):
            for base, flavour in zip(batch, identify(wire, batch, hands), strict=True):
                if flavour is not UNREAD:
                    self._take(known, base, flavour, now)
        trouble = self._sweep.refusal
        self._roster.replace(self.name, known.values(), left_out=len(self._left_out), trouble=trouble)

    def _hands(self, bases: Iterable[str], listings: Sequence[bytes]) -> dict[str, list[Worker]]:
        refs = [QueueRef(self.name, base) for base in bases]
        hands: dict[str, list[Worker]] = {}
        for listing in listings:
            for worker in client_list.parse(listing, refs, db=self._database):
                hands.setdefault(worker.queue.base, []).append(worker)
        return hands

    def _take(self, known: dict[str, KnownQueue], base: str, flavour: LibraryVersion | None, now: int) -> None:
        if flavour is None:
            self._miss(known, base, now)
            return
        self._missing.pop(base, None)
        before = known.get(base)
        if before is not None:
            known[base] = replace(before, flavour=flavour, last_seen=now)
        elif len(known) < LIMIT or base in self._configured or self._has_made_room(known, base):
            known[base] = KnownQueue(QueueRef(self.name, base), flavour, now, now, base in self._configured)
        else:
            self._left_out.add(base)

    def _has_made_room(self, known: dict[str, KnownQueue], base: str) -> bool:
        """Drops the newest queue of the largest namespace for this one; returns False if this one has to be left out.

        One that is configured, or has a worker, is not left out, and one that has a worker takes any other's place.
        """
        attended = self._roster.hints(self.name)
        if self._share is None:
            oldest_first = sorted(known.values(), key=lambda queue: queue.first_seen)
            kept = self._configured | attended
            bases = [queue.ref.base for queue in oldest_first if queue.ref.base not in kept]
            self._share = NamespaceQuota(len(bases), bases)
        gone = self._share.take() if base in attended else self._share.add(base)
        if gone is None or gone == base:
            return False
        del known[gone]
        self._left_out.add(gone)
        return True

    def _miss(self, known: dict[str, KnownQueue], base: str, now: int) -> None:
        """Handles a base that is no queue now: configured, rejected, or forgotten after a while."""
        if base in self._configured:
            known.setdefault(base, KnownQueue(QueueRef(self.name, base), _ABSENT, now, now, is_configured=True))
        elif base not in known:
            self._reject(base, now)
        elif now - self._missing.setdefault(base, now) >= GONE_MS:
            del known[base], self._missing[base]

    def _reject(self, base: str, now: int) -> None:
        while len(self._rejected) >= REJECTS:
            del self._rejected[next(iter(self._rejected))]  # the oldest
        self._rejected[base] = now


def configured_bases(deployment: Deployment) -> Iterator[str]:
    """Yields the bases of configured queues: `bull:jobs` is one as it stands, `jobs` is a name under each prefix."""
    for name in deployment.queues:
        if ":" in name:
            yield name
        else:
            yield from (f"{prefix}:{name}" for prefix in deployment.prefixes or (_PREFIX,))
