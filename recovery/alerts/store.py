"""Stores alerts between two checks: in the database, which several processes may share, or in memory without it.

One process at a time sends an alert to a channel: the delivery state is changed by compare-and-set in the database.
So a message goes out once, unless its sender dies between the delivery and the record of it; then it is sent once more,
and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from recovery.alerts.queries import decode_row, encode_deliveries, unsettled_alerts
from recovery.domain.alerts.types import AlertDelivery, AlertKind, AlertRecord
from recovery.models import Alert as Row

_AT_ONCE = 400  # numbers in one query: SQLite takes 999 of all kinds


class AlertStore(Protocol):
    """Interface of the alert stores. The one in the database raises django.db.Error."""

    def standing(self) -> list[AlertRecord]:
        """Returns all alerts that are not settled."""

    def add(self, alert: AlertRecord) -> AlertRecord | None:
        """Stores a new alert; returns None if another process stored it first."""

    def change(self, alert: AlertRecord) -> None:
        """Updates an alert, except for its delivery state."""

    def still(self, alerts: Sequence[AlertRecord], at: int) -> None:
        """Updates `seen_at` of unchanged alerts."""

    def hear(self, alert: AlertRecord, channel: str, heard: AlertDelivery) -> AlertRecord | None:
        """Sets the delivery state of a channel by compare-and-set; returns None if another process changed it first."""

    def settle(self, alerts: Iterable[AlertRecord], *, forget: bool) -> None:
        """Marks alerts as settled, or deletes them with `forget`: no channel has to be told anything more of them."""


class DatabaseAlertStore:
    """Alerts of the given kinds, stored in the database."""

    def __init__(self, kinds: frozenset[AlertKind]) -> None:
        self._kinds = kinds
        self._packed: dict[int, str] = {}  # number → delivery state of its channels, as it was stored

    def standing(self) -> list[AlertRecord]:
        rows = list(unsettled_alerts(self._kinds))
        self._packed = {row.pk: row.deliveries for row in rows}
        return [alert for row in rows if (alert := decode_row(row))]

    def add(self, alert: AlertRecord) -> AlertRecord | None:
        row = Row(key=alert.key, since=alert.since, deliveries=encode_deliveries(alert), **_facts(alert))
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            return None
        self._packed[row.pk] = row.deliveries
        return replace(alert, number=row.pk)

    def change(self, alert: AlertRecord) -> None:
        _row(alert).update(since=alert.since, **_facts(alert))

    def still(self, alerts: Sequence[AlertRecord], at: int) -> None:
        numbers = [alert.number for alert in alerts if alert.number is not None]
        for start in range(0, len(numbers), _AT_ONCE):
            Row.objects.filter(pk__in=numbers[start : start + _AT_ONCE]).update(seen_at=at)

    def hear(self, alert: AlertRecord, channel: str, heard: AlertDelivery) -> AlertRecord | None:
        if alert.number is None:
            return None
        news = alert.with_heard(channel, heard)
        before, after = self._packed[alert.number], encode_deliveries(news)
        if not Row.objects.filter(pk=alert.number, deliveries=before).update(deliveries=after):
            return None
        self._packed[alert.number] = after
        return news

    def settle(self, alerts: Iterable[AlertRecord], *, forget: bool) -> None:
        for alert in alerts:
            if forget:
                _row(alert).delete()
            else:
                _row(alert).update(is_settled=True)


class InMemoryAlertStore:
    """Alerts of a process that cannot reach the database, beginning with what it last read there."""

    def __init__(self, alerts: Iterable[AlertRecord] = ()) -> None:
        self._alerts = {(alert.kind, alert.key): alert for alert in alerts}
        self._settled: list[AlertRecord] = []

    def standing(self) -> list[AlertRecord]:
        return list(self._alerts.values())

    def add(self, alert: AlertRecord) -> AlertRecord | None:
        self._alerts[alert.kind, alert.key] = alert
        return alert

    def change(self, alert: AlertRecord) -> None:
        self._alerts[alert.kind, alert.key] = alert

    def still(self, alerts: Sequence[AlertRecord], at: int) -> None:
        for alert in alerts:
            self.change(replace(alert, seen_at=at))

    def hear(self, alert: AlertRecord, channel: str, heard: AlertDelivery) -> AlertRecord | None:
        news = alert.with_heard(channel, heard)
        self.change(news)
        return news

    def settle(self, alerts: Iterable[AlertRecord], *, forget: bool) -> None:
        for alert in alerts:
            self._alerts.pop((alert.kind, alert.key), None)
            self._settled += [] if forget else [alert]

    def hand_over(self, rows: DatabaseAlertStore) -> None:
        """Writes what was sent meanwhile to the database, so that no alert is sent twice and ended ones are settled."""
        kept = {alert.number: alert for alert in rows.standing()}
        for alert in (*self._settled, *self._alerts.values()):
            old = kept.get(alert.number) if alert.number is not None else rows.add(alert)
            if old is None:
                continue  # another process has told it
            rows.change(alert)
            for channel, heard in alert.heard.items():
                old = rows.hear(old, channel, heard) or old
            if alert in self._settled:
                rows.settle([old], forget=False)


def _row(alert: AlertRecord) -> QuerySet[Row]:
    return Row.objects.none() if alert.number is None else Row.objects.filter(pk=alert.number)


def _facts(alert: AlertRecord) -> dict[str, str | int | None]:
    return {
        "kind": alert.kind.value,
        "words": alert.words,
        "link": alert.link,
        "size": alert.size,
        "seen_at": alert.seen_at,
        "resolved_at": alert.resolved_at,
    }
