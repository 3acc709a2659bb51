"""Counts from the database for metrics: how long incidents took, which actions were done, and the safety limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from recovery.domain.identifiers import QueueRef

# Seconds, upper ends of the buckets. A library's own recovery takes about a minute; a night is eight hours.
BOUNDS = (1, 5, 10, 30, 60, 120, 300, 900, 3_600, 14_400, 43_200, 86_400)


@dataclass(frozen=True, slots=True)
class DurationHistogram:
    """Histogram: how many fall into each bucket, the last one without an upper end, and their total in ms."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS) + 1)
    total_ms: int = 0

    def plus(self, other: DurationHistogram) -> DurationHistogram:
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return DurationHistogram(counts, self.total_ms + other.total_ms)


@dataclass(frozen=True, slots=True)
class BudgetSpending:
    """Auto-retry budget of a queue, per minute."""

    queue: QueueRef
    spent: int
    limit: int


@dataclass(frozen=True, slots=True)
class BreakerCounts:
    """Number of a queue's breakers in each stage."""

    queue: QueueRef
    closed: int = 0
    open: int = 0
    half_open: int = 0


ActKey = tuple[str, str, str]  # the action, its outcome, and the kind of actor


@dataclass(frozen=True, slots=True)
class MetricCounters:
    """Counts at that moment. `durations` (by who resolved the incident) and `acts` only ever grow.

    `until` and `audited` are how far these two have been counted: the time of the last closed incident that will not be
    looked at again, and the number of the last entry of the audit. `settled` are the durations up to `until`.
    """

    at: int
    until: int
    audited: int
    settled: Mapping[str, DurationHistogram] = field(default_factory=dict)
    durations: Mapping[str, DurationHistogram] = field(default_factory=dict)
    acts: Mapping[ActKey, int] = field(default_factory=dict)
    open: Mapping[str, int] = field(default_factory=dict)  # incidents, by deployment
    held: tuple[str, ...] = ()  # deployments with an active Redis pause
    spending: tuple[BudgetSpending, ...] = ()
    breakers: tuple[BreakerCounts, ...] = ()
    quarantined: Mapping[QueueRef, int] = field(default_factory=dict)  # jobs that wait for a person


def sums(one: Mapping[str, DurationHistogram], other: Mapping[str, DurationHistogram]) -> dict[str, DurationHistogram]:
    return {
        name: one.get(name, DurationHistogram()).plus(other.get(name, DurationHistogram())) for name in {**one, **other}
    }
