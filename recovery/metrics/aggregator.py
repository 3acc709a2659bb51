"""Adds what is new in the database to the counts for /metrics every 15 seconds, and publishes them."""

from __future__ import annotations

from recovery.domain.metrics.counters import MetricCounters, sums
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.metrics import action_counts, incident_durations, tally_store
from recovery.metrics.quarantine_counts import QuarantineCounts
from recovery.metrics.safety_limit_counts import SafetyLimitCounts
from recovery.stores.registry import ConnectionRegistry

EVERY = 15.0  # seconds: a usual scrape interval


class MetricsAggregator:
    """Counts and publishes, for one thread at a time. A new leader goes on from the published counts."""

    def __init__(self, registry: ConnectionRegistry, may: May = always_leader) -> None:
        self._registry = registry
        self._may = may
        self._safety_limits = SafetyLimitCounts(registry.config)
        self._quarantined = QuarantineCounts()
        self._last: MetricCounters | None = None

    def run(self, now: int) -> MetricCounters:
        """Counts once, and publishes if this process is the leader. Raises StoreError, and Error of the database."""
        store = self._registry.state()
        found = self._counted(self._last or tally_store.fetch(store), now)
        if self._may():
            tally_store.publish(store, found)
            self._last = found
        return found

    def _counted(self, before: MetricCounters | None, now: int) -> MetricCounters:
        settled, until = incident_durations.settled_durations(before, now)
        done, audited = action_counts.count_actions(before)
        return MetricCounters(
            at=now,
            until=until,
            audited=audited,
            settled=settled,
            durations=sums(settled, incident_durations.durations_between(until)),
            acts=done,
            open=incident_durations.count_open(),
            held=self._safety_limits.held(now),
            spending=self._safety_limits.spending(now),
            breakers=self._safety_limits.breakers(now),
            quarantined=self._quarantined.jobs(now),
        )
