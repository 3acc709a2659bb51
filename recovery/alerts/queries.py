"""Reads alerts from the database: firing ones and resolved ones."""

from __future__ import annotations

import json
from typing import Any

from django.db.models import QuerySet

from recovery.domain import json_fields
from recovery.domain.alerts import types as domain
from recovery.domain.alerts.types import AlertDelivery, AlertEvent, AlertKind, AlertSettings
from recovery.models import Alert

LIMIT = 200  # on a page: of more the page shows the number
STANDING = 1_000  # handled at once; beyond them no new alert is sent until some are resolved


def unsettled_alerts(kinds: frozenset[AlertKind]) -> QuerySet[Alert]:
    """Selects alerts that are not resolved, or whose resolution was not sent to every channel yet."""
    rows = Alert.objects.filter(is_settled=False, kind__in=[kind.value for kind in kinds])
    return rows.order_by("since", "pk")[:STANDING]


def firing(terms: AlertSettings) -> tuple[domain.AlertRecord, ...]:
    """Returns the alerts that have lasted long enough to be sent, the newest first; at most LIMIT."""
    rows = Alert.objects.filter(resolved_at=None).order_by("-since", "-pk")[:STANDING]
    return tuple(alert for alert in _read(rows) if alert.is_ripe(terms))[:LIMIT]


def resolved_alerts(terms: AlertSettings) -> tuple[domain.AlertRecord, ...]:
    """Returns the resolved alerts, the latest first; at most LIMIT."""
    rows = Alert.objects.exclude(resolved_at=None).order_by("-resolved_at", "-pk")[:LIMIT]
    return tuple(alert for alert in _read(rows) if alert.heard or alert.is_ripe(terms))


def decode_row(row: Alert) -> domain.AlertRecord | None:
    """Decodes a row; returns None for a kind that only another version knows."""
    kind = next((kind for kind in AlertKind if kind.value == row.kind), None)
    if kind is None:
        return None
    return domain.AlertRecord(
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


def encode_deliveries(alert: domain.AlertRecord) -> str:
    """Encodes what was sent to each channel, for the row's column."""
    told = {name: [heard.event, heard.at, heard.size, heard.count, heard.trying] for name, heard in alert.heard.items()}
    return json.dumps(told, separators=(",", ":"), sort_keys=True)


def _read(rows: QuerySet[Alert]) -> list[domain.AlertRecord]:
    return [alert for row in rows if (alert := decode_row(row))]


def _heard(packed: str) -> dict[str, AlertDelivery]:
    """Decodes what was sent to each channel. What is unreadable counts as not sent: a repeated alert beats none."""
    try:
        found: Any = json.loads(packed)
        return {str(name): _one(*row) for name, row in found.items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _one(event: Any, at: Any, size: Any, count: Any, trying: Any) -> AlertDelivery:
    return AlertDelivery(
        AlertEvent(event) if event else None,
        json_fields.whole(at),
        json_fields.count(size),
        json_fields.count(count),
        json_fields.whole_or_none(trying),
    )
