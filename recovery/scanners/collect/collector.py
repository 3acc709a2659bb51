"""Takes the snapshot: reads all deployments concurrently, combines the results, and publishes them.

Each deployment has its own thread. A tick waits for those that answered last time; one that was silent before is not
waited for, its answer counts in the tick after it came. So one that is down costs only its own rows and delays nothing.
One that answered a moment ago and is late now is reported as slow, with its last numbers, and not as down.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from itertools import chain

from recovery.config import Database, Deployment
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import SPARK, FinishedTally
from recovery.domain.queues.types import Snapshot
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.errors import UnstallError
from recovery.reads.queues import history, snapshot_store
from recovery.scanners.collect.deployment_sampler import CollectedDeployment, DeploymentSampler
from recovery.scanners.collect.outage_tracker import OutageTracker
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.job_tables.sampler import TableSampler
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

SHORTEST_WAIT = 1.0  # seconds a tick waits at least for a deployment that has answered
WAIT_FACTOR = 3.0  # times as long as its last read took: the way to a distant one takes longer
WAIT_FACTOR_UNHEALTHY = 1.5  # and for one that was down or slow
LONGEST_WAIT = 4.0  # seconds: the others wait for it
SLOW_MS = 5_000  # since the last answer: a stall of two seconds is not an outage, and this one is
SHORTEST_WAIT_UNHEALTHY = 0.05  # seconds a tick waits at least for one that was down or slow
_ADVICE = "It accepts connections but does not answer in time."


class Collector:
    """Takes snapshots of all deployments. `roster`: queues that discovery found, else those in the state store.

    `may`: a snapshot that was begun as leader and is ready when another one leads must not overwrite its newer one.
    """

    def __init__(
        self, registry: ConnectionRegistry, roster: KnownQueues | None = None, may: May = always_leader
    ) -> None:
        self._registry = registry
        self._may = may
        self._roster = roster if roster is not None else self._remembered()
        self._desks = [
            *(self._desk(deployment) for deployment in registry.config.deployments),
            *(self._table_desk(database) for database in registry.config.databases),
        ]
        self._pool = ThreadPoolExecutor(max_workers=max(1, len(self._desks)), thread_name_prefix="collect")
        self._number = 0
        self._answers = OutageTracker()
        self.newest: Snapshot | None = None

    def run(self, now: int) -> Snapshot:
        """Takes and publishes one snapshot; raises StoreError when it cannot be published, after it was taken.

        Scanners of this process do not act on it before the state store knows which deployments were silent until now.
        """
        snapshot = self._taken(now)
        if not self._may():
            self.newest = snapshot
            return snapshot
        try:
            self._answers.tell(self._registry.state())
        finally:
            self.newest = self.newest if self._answers.owes else snapshot
        snapshot_store.publish(self._registry.state(), snapshot)
        return snapshot

    def look(self, now: int) -> Snapshot:
        """Takes one snapshot without publishing it."""
        self.newest = self._taken(now)
        return self.newest

    def _taken(self, now: int) -> Snapshot:
        for desk in self._desks:
            desk.begin(self._pool, now)
        began = time.monotonic()
        for desk in sorted(self._desks, key=lambda desk: desk.patience):
            if desk.future:
                wait([desk.future], timeout=max(0.0, began + desk.patience - time.monotonic()))
        looks = [desk.end(now) for desk in self._desks]
        # Grows over restarts too, and needs no store for that.
        self._number = max(self._number + 1, now // 1000)
        self._answers.hear(looks)
        return Snapshot(
            number=self._number,
            taken_at=now,
            deployments=tuple(look.deployment for look in looks),
            queues=tuple(chain.from_iterable(look.queues for look in looks)),
            workers=tuple(chain.from_iterable(look.workers for look in looks)),
        )

    def close(self) -> None:
        """Stops the threads without waiting; a read that hangs ends by its own timeout."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _remembered(self) -> KnownQueues:
        roster = KnownQueues()
        for deployment in self._registry.config.deployments:
            roster.load(self._registry.state(), deployment.name)
        return roster

    def _desk(self, deployment: Deployment) -> _Desk:
        name = deployment.name
        return _Desk(DeploymentSampler(deployment, lambda: self._registry.wire(name), self._roster, self._recorded))

    def _table_desk(self, database: Database) -> _Desk:
        name = database.name
        listed = self._registry.config.tables_of(name)
        return _Desk(TableSampler(database, listed, lambda: self._registry.wire(name), self._recorded))

    def _recorded(self, refs: Sequence[QueueRef], now: int) -> Mapping[QueueRef, Mapping[int, FinishedTally]]:
        """Reads our own recorded history of these queues; without a state store there is none."""
        try:
            return history.recent(self._registry.state(), refs, now, minutes=SPARK)
        except UnstallError:
            return {}


class _Desk:
    """A deployment in the collector: its sampler, and the read that is under way."""

    def __init__(self, watch: DeploymentSampler | TableSampler) -> None:
        self._watch = watch
        self._began = 0
        self.future: Future[CollectedDeployment] | None = None
        self._well: CollectedDeployment | None = None  # the last one that was answered
        self._was_well = True
        self._trouble = ("", "")  # error and advice, as told last
        self._fault = ""

    @property
    def patience(self) -> float:
        """Seconds that a tick waits for this deployment; few if it was down or slow at the tick before."""
        took = self._well.deployment.took_ms / 1000 if self._well else 0.0
        return min(
            LONGEST_WAIT,
            max(SHORTEST_WAIT, took * WAIT_FACTOR)
            if self._was_well
            else max(SHORTEST_WAIT_UNHEALTHY, took * WAIT_FACTOR_UNHEALTHY),
        )

    def begin(self, pool: ThreadPoolExecutor, now: int) -> None:
        """Starts a read, unless the one before still hangs."""
        if self.future is None:
            self._began = now
            self.future = pool.submit(self._watch.look, now)

    def end(self, now: int) -> CollectedDeployment:
        look = self._result(now)
        error = look.deployment.error
        if not error:
            self._well = look
        elif look.is_late and self._well and 0 <= now - self._well.deployment.taken_at <= SLOW_MS:
            look = self._well.slow(error)
        self._trouble = look.deployment.error, look.deployment.advice
        self._was_well = not error
        return look

    def _result(self, now: int) -> CollectedDeployment:
        if self.future is None or not self.future.done():
            if self._trouble[0]:  # what it last failed with says more than that it has not answered yet
                return self._watch.missed(*self._trouble)
            silent = max(0, now - self._began) / 1000 + self.patience
            return replace(self._watch.missed(f"no answer for {silent:.1f} s", _ADVICE), is_late=True)
        future, self.future = self.future, None
        fault = future.exception()
        if fault is None:
            self._fault = ""
            return future.result()
        # A fault of ours in one deployment must not cost the others their numbers, nor fill the log.
        if repr(fault) != self._fault:
            log.error("cannot read %s", self._watch.name, exc_info=fault)
        self._fault = repr(fault)
        return self._watch.missed(f"cannot be read: {fault!r}", "This is a bug in Unstall; see its log.")
