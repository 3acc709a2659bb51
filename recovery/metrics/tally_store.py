"""Stores the counters of the metrics endpoint for the web processes: JSON in one key of the state store."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any

import redis

from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.counters import BOUNDS, BreakerCounts, BudgetSpending, DurationHistogram, MetricCounters
from recovery.stores.redis import redis_errors
from recovery.stores.state import size_limits, state_keys

KEEP_S = 7 * 86_400
# Tells a reader of another version that it cannot read the document.
_SHAPE = zlib.crc32(
    repr(
        [
            BOUNDS,
            *(
                field.name
                for kind in (MetricCounters, DurationHistogram, BudgetSpending, BreakerCounts)
                for field in fields(kind)
            ),
        ]
    ).encode()
)


def publish(store: redis.Redis, tallies: MetricCounters) -> None:
    """Stores the counters as the newest ones. Raises StoreError."""
    packed = encode(tallies)
    with redis_errors.guarded(store):
        store.set(state_keys.TALLIES, packed, ex=KEEP_S)


def fetch(store: redis.Redis) -> MetricCounters | None:
    """Fetches the counters; None if there are none that this version can read; raises StoreError."""
    with redis_errors.guarded(store):
        answer = size_limits.ask_string(store, state_keys.TALLIES, size_limits.TALLIES_LIMIT)
    packed = size_limits.string_of(answer, size_limits.TALLIES_LIMIT)
    return decode(packed) if packed is not None else None


def encode(tallies: MetricCounters) -> bytes:
    document = [
        _SHAPE,
        tallies.at,
        tallies.until,
        tallies.audited,
        _durations(tallies.settled),
        _durations(tallies.durations),
        [[*key, count] for key, count in tallies.acts.items()],
        tallies.open,
        tallies.held,
        [[*_ref(one.queue), one.spent, one.limit] for one in tallies.spending],
        [[*_ref(one.queue), one.closed, one.open, one.half_open] for one in tallies.breakers],
        [[*_ref(queue), count] for queue, count in tallies.quarantined.items()],
    ]
    return json.dumps(document, separators=(",", ":")).encode("ascii")


@lru_cache(maxsize=2)  # it is asked for with each scrape, and changes every few
def decode(packed: bytes) -> MetricCounters | None:
    """Reverses `encode`; None for anything that this version did not write."""
    try:
        shape, at, until, audited, settled, durations, acts, opened, held, spending, breakers, quarantined = json.loads(
            packed
        )
        if shape != _SHAPE:
            return None
        return MetricCounters(
            at=at,
            until=until,
            audited=audited,
            settled=_read_durations(settled),
            durations=_read_durations(durations),
            acts={(act, outcome, by): count for act, outcome, by, count in acts},
            open=opened,
            held=tuple(held),
            spending=tuple(BudgetSpending(QueueRef(*row[:2]), *row[2:]) for row in spending),
            breakers=tuple(BreakerCounts(QueueRef(*row[:2]), *row[2:]) for row in breakers),
            quarantined={QueueRef(*row[:2]): row[2] for row in quarantined},
        )
    except (ValueError, TypeError, IndexError, KeyError, RecursionError):
        return None


def _ref(queue: QueueRef) -> tuple[str, str]:
    return queue.deployment, queue.base


def _durations(found: Mapping[str, DurationHistogram]) -> dict[str, Any]:
    return {by: [one.counts, one.total_ms] for by, one in found.items()}


def _read_durations(written: Mapping[str, Any]) -> dict[str, DurationHistogram]:
    return {by: DurationHistogram(tuple(counts), total) for by, (counts, total) in written.items()}
