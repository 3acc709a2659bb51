"""Counts how long proven orphans took from first sight to resolution, by who resolved them.

An incident may be recorded as closed at an earlier moment, when its end took long to prove. So the last hour is counted
anew each time, and only what is older is settled. What is pruned later stays in the sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

from django.db.models import Count, F, Q, QuerySet, Sum
from django.db.models.functions import Greatest

from recovery.domain.metrics.counters import BOUNDS, DurationHistogram, MetricCounters, sums
from recovery.domain.time_units import HOUR, SECOND
from recovery.models import Incident

SETTLED_AFTER = HOUR


def settled_durations(before: MetricCounters | None, now: int) -> tuple[Mapping[str, DurationHistogram], int]:
    """Returns the sums of incidents closed more than an hour ago, and up to when; at first all of the database."""
    known, since = (before.settled, before.until) if before else ({}, 0)
    until = max(since, now - SETTLED_AFTER)
    return (sums(known, durations_between(since, until)) if until > since else known), until


def durations_between(since: int, until: int | None = None) -> dict[str, DurationHistogram]:
    """Returns the durations of incidents closed after `since`, up to `until`. Raises Error of the database."""
    closed = Incident.objects.exclude(proven_at=None).filter(closed_at__gt=since)
    return _grouped(closed if until is None else closed.filter(closed_at__lte=until))


def count_open() -> dict[str, int]:
    """Returns the number of open incidents of proven orphans, by deployment."""
    lost = Incident.objects.exclude(proven_at=None).filter(closed_at=None)
    return dict(lost.values_list("deployment").annotate(Count("id")).order_by("deployment"))


def _grouped(closed: QuerySet[Incident]) -> dict[str, DurationHistogram]:
    """Returns histograms of the durations by resolver, in one query."""
    took = closed.annotate(took=Greatest(F("closed_at") - F("opened_at"), 0))
    upto = {f"upto_{bound}": Count("id", filter=Q(took__lte=bound * SECOND)) for bound in BOUNDS}
    grouped = took.values("resolved_by").annotate(**upto, every=Count("id"), total=Sum("took")).order_by("resolved_by")
    rows = cast("Iterable[Mapping[str, Any]]", grouped)
    return {row["resolved_by"]: _of([*(row[name] for name in upto), row["every"]], row["total"]) for row in rows}


def _of(upto: list[int], total: int) -> DurationHistogram:
    counts = (count - before for before, count in zip([0, *upto], upto, strict=False))
    return DurationHistogram(tuple(counts), total)
