"""Adds each full minute to the totals of its queue, so that Prometheus scrapes counters that never fall.

A minute is taken from BullMQ's metrics and from our recorded history; each may miss something and none invents, so the
larger number counts. Minutes in which no scheduler ran are added later, as far as either still has them.

The totals are read and written in one transaction: of two processes that believe to be the leader, one adds.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping

import redis

from recovery.backends.redis_common import metrics
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.queue_totals import QueueTotal
from recovery.domain.queues.time_series import DAY, MINUTE, MINUTES, UNKNOWN, FinishedTally, by_minute
from recovery.domain.queues.types import Snapshot
from recovery.errors import StoreError
from recovery.metrics import queue_totals_store
from recovery.reads.queues import history
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys

KEPT = 8 * DAY  # minutes: as long as the history of a queue that is gone
AT_ONCE = 20_000  # minutes of all queues in one request: about 2 MB

log = logging.getLogger(__name__)

_Cells = Mapping[int, FinishedTally]


class QueueTotalsCounter:
    """Totals of all queues in the state store. For one thread at a time."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry
        self._written: dict[QueueRef, QueueTotal] = {}  # a store that comes back empty does not set them back

    def add(self, snapshot: Snapshot, counted: Mapping[QueueRef, FinishedTally], now: int) -> int:
        """Adds the minutes since the last call; returns how many totals were written, 0 when another process wrote at
        the same time. `counted`: the minute that has just ended, of the queues that were read. Raises StoreError.
        """
        store = self._registry.state()
        with redis_errors.guarded(store), store.pipeline(transaction=True) as pipeline:
            pipeline.watch(state_keys.TOTALS)  # type: ignore[no-untyped-call] # redis-py's own
            known = self._known(pipeline)
            grown = self._grown(snapshot, known, counted, now)
            gone = [ref for ref, total in known.items() if total.minute < now // MINUTE - KEPT and ref not in grown]
            if not grown and not gone:
                return 0
            return self._write(pipeline, grown, gone)

    def _known(self, pipeline: redis.client.Pipeline) -> dict[QueueRef, QueueTotal]:
        """Reads the stored totals; of each at least what this process wrote itself."""
        known = queue_totals_store.decode_totals(pipeline.hgetall(state_keys.TOTALS))  # type: ignore[arg-type]  # after WATCH it answers at once
        for ref, written in self._written.items():
            if ref not in known or known[ref].minute < written.minute:
                known[ref] = written
        return known

    def _grown(
        self,
        snapshot: Snapshot,
        known: Mapping[QueueRef, QueueTotal],
        counted: Mapping[QueueRef, FinishedTally],
        now: int,
    ) -> dict[QueueRef, QueueTotal]:
        minute = now // MINUTE - 1
        before = {ref: known.get(ref, QueueTotal(minute - 1)) for ref in counted}
        missing = {ref: min(minute - total.minute, DAY) for ref, total in before.items() if total.minute < minute}
        counting = {sample.ref for sample in snapshot.queues if sample.rates.source == "library"}
        grown = {}
        for part in _parts(missing):
            library = self._library({ref: size for ref, size in part.items() if ref in counting}, now)
            recorded = self._recorded(part, now)
            for ref, size in part.items():
                cells = {**recorded.get(ref, {}), minute: counted[ref]}
                grown[ref] = before[ref].after(minute, _minutes(minute, size, library.get(ref, {}), cells))
        return grown

    def _library(self, wanted: Mapping[QueueRef, int], now: int) -> dict[QueueRef, _Cells]:
        """Reads BullMQ's metrics of these queues; for a deployment that does not answer only our history counts."""
        found: dict[QueueRef, _Cells] = {}
        for deployment in dict.fromkeys(ref.deployment for ref in wanted):
            mine = {ref: size for ref, size in wanted.items() if ref.deployment == deployment}
            try:
                found |= self._asked(deployment, mine, now)
            except StoreError as error:
                log.info("%s: the workers' metrics cannot be read: %s", deployment, error)
        return found

    def _asked(self, deployment: str, wanted: Mapping[QueueRef, int], now: int) -> dict[QueueRef, _Cells]:
        questions = [command for ref, size in wanted.items() for command in metrics.plan(Keys(ref.base), size)]
        replies = self._registry.wire(deployment).call(questions)
        found: dict[QueueRef, _Cells] = {}
        for index, (ref, size) in enumerate(wanted.items()):
            start = index * metrics.COMMANDS
            if columns := metrics.columns(replies[start : start + metrics.COMMANDS], now, size):
                found[ref] = by_minute(now, *columns)
        return found

    def _recorded(self, wanted: Mapping[QueueRef, int], now: int) -> dict[QueueRef, dict[int, FinishedTally]]:
        """Reads our history of the minutes before the newest one, which is known already."""
        behind = [ref for ref, size in wanted.items() if size > 1]
        if not behind:
            return {}
        newest, size = now // MINUTE - 1, max(wanted[ref] for ref in behind)
        return history.cells(self._registry.state(), MINUTES, behind, newest - size + 1, newest - 1)

    def _write(
        self, pipeline: redis.client.Pipeline, grown: Mapping[QueueRef, QueueTotal], gone: Iterable[QueueRef]
    ) -> int:
        pipeline.multi()
        if grown:
            pipeline.hset(
                state_keys.TOTALS,
                mapping={queue_totals_store.field(ref): total.encode() for ref, total in grown.items()},
            )
        for ref in gone:
            pipeline.hdel(state_keys.TOTALS, queue_totals_store.field(ref))
            self._written.pop(ref, None)
        try:
            pipeline.execute()
        except redis.WatchError:
            return 0
        self._written |= grown
        return len(grown)


def _minutes(newest: int, size: int, library: _Cells, recorded: _Cells) -> Iterable[FinishedTally]:
    for minute in range(newest - size + 1, newest + 1):
        yield library.get(minute, UNKNOWN).at_least(recorded.get(minute, UNKNOWN))


def _parts(missing: Mapping[QueueRef, int]) -> Iterator[dict[QueueRef, int]]:
    """Splits the queues, which may all miss a day, into requests of limited size. Those that miss most come last."""
    part: dict[QueueRef, int] = {}
    for ref, size in sorted(missing.items(), key=lambda one: one[1]):
        if part and (len(part) + 1) * size > AT_ONCE:
            yield part
            part = {}
        part[ref] = size
    if part:
        yield part
