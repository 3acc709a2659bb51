"""Alerts as the database has them: those that stand, and those that were."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet

from recovery.domain import alerts as domain
from recovery.domain import stored
from recovery.domain.alerts import AlertKind, Event, Heard, Terms
from recovery.models import Alert

LIMIT = 200  # on a page: a worse night than that is told by its number
STANDING = 1_000  # looked after at once; beyond them nothing new is told until some are over


def unsettled(kinds: frozenset[AlertKind]) -> QuerySet[Alert]:
    """Rows that are not over, or of which somebody has yet to hear that they are."""
    rows = Alert.objects.filter(is_settled=False, kind__in=[kind.value for kind in kinds])
    return rows.order_by("since", "pk")[:STANDING]


def firing(terms: Terms) -> tuple[domain.Alert, ...]:
    """Those that have lasted long enough to be told, the newest first; at most LIMIT."""
    rows = Alert.objects.filter(resolved_at=None).order_by("-since", "-pk")[:STANDING]
    return tuple(alert for alert in _read(rows) if alert.is_ripe(terms))[:LIMIT]


def lately(terms: Terms) -> tuple[domain.Alert, ...]:
    """Those that are over, the latest first; at most LIMIT."""
    rows = Alert.objects.exclude(resolved_at=None).order_by("-resolved_at", "-pk")[:LIMIT]
    return tuple(alert for alert in _read(rows) if alert.heard or alert.is_ripe(terms))


def decoded(row: Alert) -> domain.Alert | None:
    """None for a kind of another version."""
    kind = next((kind for kind in AlertKind if kind.value == row.kind), None)
    if kind is None:
        return None
    return domain.Alert(
        kind,
        row.key,
        row.words,
        row.link,
        row.size,
        row.since,
        row.seen_at,
        row.resolved_at,
        _heard(row.deliveries),
        row.pk,
    )


def written(alert: domain.Alert) -> str:
    """What its channels have heard, as the row has it."""
    told = {name: [heard.event, heard.at, heard.size, heard.count, heard.trying] for name, heard in alert.heard.items()}
    return json.dumps(told, separators=(",", ":"), sort_keys=True)


def _read(rows: QuerySet[Alert]) -> list[domain.Alert]:
    return [alert for row in rows if (alert := decoded(row))]


def _heard(packed: str) -> dict[str, Heard]:
    """What cannot be read was told to nobody: once too often is better than never."""
    try:
        found: Any = json.loads(packed)
        return {str(name): _one(*row) for name, row in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _one(event: Any, at: Any, size: Any, count: Any, trying: Any) -> Heard:
    return Heard(
        Event(event) if event else None,
        stored.whole(at),
        stored.count(size),
        stored.count(count),
        stored.whole_or_none(trying),
    )
