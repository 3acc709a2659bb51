"""Writes the families that the leader counts in the database: incidents, actions and safety limits."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, product

from dashboard.metrics.exposition import Lines, MetricFamily
from dashboard.metrics.labels import format_labels, queue_labels
from dashboard.metrics.scrape_input import ScrapeInput
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.metrics.counters import BOUNDS, DurationHistogram, MetricCounters

BY = ("person", "token", "shell", "scanner")  # kinds of actors
RESOLVERS = ("stalled-check", "scanner", "operator", "worker", "removed", "")
NOBODY = "unknown"  # the resolver of an incident if it was not observed

TOOK = MetricFamily(
    "unstall_incident_duration_seconds",
    "Time from the detection of an orphaned job to its resolution, by what resolved it.",
    "histogram",
    unit="seconds",
)
ACTIONS = MetricFamily("unstall_actions", "Actions on jobs and queues, by action, outcome and actor kind.", "counter")
OPEN = MetricFamily("unstall_incidents_open", "Orphaned jobs that are not resolved yet.")
HELD = MetricFamily("unstall_auto_recovery_paused", "1 while auto-recovery is paused because of a Redis problem.")
SPENT = MetricFamily("unstall_budget_spent", "Auto-retries of a queue that count against its budget per minute.")
LIMIT = MetricFamily("unstall_budget_limit", "Auto-retries of a queue that are allowed per minute.")
BREAKERS = MetricFamily("unstall_breakers", "Breakers of a queue by stage, one for each auto-retried error.")
QUARANTINE = MetricFamily(
    "unstall_quarantined_jobs", "Quarantined jobs: repeatedly stalled, so scanners do not change them."
)


def families(picture: ScrapeInput) -> Iterator[Lines]:
    if picture.tallies:
        yield TOOK, _histogram(picture.tallies)
        yield ACTIONS, _actions(picture.tallies)
    if lately := picture.counted_lately:
        yield from _levels(lately, picture)


def _histogram(tallies: MetricCounters) -> Iterator[str]:
    """Yields the incident durations of all resolvers, also unused ones: a new series would show no increase."""
    for by in dict.fromkeys((*RESOLVERS, *tallies.durations)):
        found = tallies.durations.get(by, DurationHistogram())
        labels = format_labels(resolved_by=by or NOBODY)
        for bound, upto in zip((*map(float, BOUNDS), "+Inf"), accumulate(found.counts), strict=True):
            yield f'{TOOK.name}_bucket{{{labels},le="{bound}"}} {upto}\n'
        yield f"{TOOK.name}_count{{{labels}}} {sum(found.counts)}\n"
        yield f"{TOOK.name}_sum{{{labels}}} {found.total_ms / 1000}\n"


def _actions(tallies: MetricCounters) -> Iterator[str]:
    keys = ((act.value, outcome.value, by) for act, outcome, by in product(Action, Outcome, BY))
    for act, outcome, by in dict.fromkeys((*keys, *tallies.acts)):
        count = tallies.acts.get((act, outcome, by), 0)
        yield ACTIONS.of(format_labels(action=act, result=outcome, by=by), count)


def _levels(lately: MetricCounters, picture: ScrapeInput) -> Iterator[Lines]:
    snapshot = picture.image.snapshot
    deployments = [one.name for one in snapshot.deployments] if snapshot else []
    yield OPEN, [OPEN.of(format_labels(deployment=name), lately.open.get(name, 0)) for name in deployments]
    yield HELD, [HELD.of(format_labels(deployment=name), int(name in lately.held)) for name in deployments]
    listed = {sample.ref for sample in picture.queues}
    spending = [(queue_labels(one.queue), one) for one in lately.spending if one.queue in listed]
    yield SPENT, [SPENT.of(labels, one.spent) for labels, one in spending]
    yield LIMIT, [LIMIT.of(labels, one.limit) for labels, one in spending]
    stages = [(queue_labels(one.queue), one) for one in lately.breakers if one.queue in listed]
    yield (
        BREAKERS,
        [
            BREAKERS.of(f'{labels},stage="{stage}"', count)
            for labels, one in stages
            for stage, count in (("closed", one.closed), ("open", one.open), ("half-open", one.half_open))
        ],
    )
    yield (
        QUARANTINE,
        [QUARANTINE.of(queue_labels(ref), count) for ref, count in lately.quarantined.items() if ref in listed],
    )
