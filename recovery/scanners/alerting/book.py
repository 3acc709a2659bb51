"""Where alerts are kept between two looks: rows of the database, which several processes may share.

Of one alert only one process tells one channel at a time: whoever changes what a channel has heard names what it was
before, and the database says who came first. So a message goes out once, unless its sender dies between the delivery
and the note of it; then it goes out once more, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from django.db import IntegrityError, transaction
from django.db.models import QuerySet

from recovery.domain.alerts import Alert, AlertKind, Heard
from recovery.models import Alert as Row
from recovery.reads.alerts import decoded, unsettled, written

_AT_ONCE = 400  # numbers in one query: SQLite takes 999 of all kinds


class Book(Protocol):
    """Raises django.db.Error when it is one of the database."""

    def standing(self) -> list[Alert]:
        """All that is to be looked after."""

    def add(self, alert: Alert) -> Alert | None:
        """None: another was faster."""

    def change(self, alert: Alert) -> None:
        """Anything but what its channels have heard."""

    def still(self, alerts: Sequence[Alert], at: int) -> None:
        """They were seen as they are."""

    def hear(self, alert: Alert, channel: str, heard: Heard) -> Alert | None:
        """None: somebody else has told this channel something meanwhile."""

    def settle(self, alerts: Iterable[Alert], *, forget: bool) -> None:
        """Nobody has to hear anything more of them."""


class Rows:
    """The book that is in the database, of these kinds."""

    def __init__(self, kinds: frozenset[AlertKind]) -> None:
        self._kinds = kinds
        self._packed: dict[int, str] = {}  # number → what its channels have heard, as it was written

    def standing(self) -> list[Alert]:
        rows = list(unsettled(self._kinds))
        self._packed = {row.pk: row.deliveries for row in rows}
        return [alert for row in rows if (alert := decoded(row))]

    def add(self, alert: Alert) -> Alert | None:
        row = Row(key=alert.key, since=alert.since, deliveries=written(alert), **_facts(alert))
        try:
            with transaction.atomic():
                row.save(force_insert=True)
        except IntegrityError:
            return None
        self._packed[row.pk] = row.deliveries
        return replace(alert, number=row.pk)

    def change(self, alert: Alert) -> None:
        _row(alert).update(since=alert.since, **_facts(alert))

    def still(self, alerts: Sequence[Alert], at: int) -> None:
        numbers = [alert.number for alert in alerts if alert.number is not None]
        for start in range(0, len(numbers), _AT_ONCE):
            Row.objects.filter(pk__in=numbers[start : start + _AT_ONCE]).update(seen_at=at)

    def hear(self, alert: Alert, channel: str, heard: Heard) -> Alert | None:
        if alert.number is None:
            return None
        news = alert.with_heard(channel, heard)
        before, after = self._packed[alert.number], written(news)
        if not Row.objects.filter(pk=alert.number, deliveries=before).update(deliveries=after):
            return None
        self._packed[alert.number] = after
        return news

    def settle(self, alerts: Iterable[Alert], *, forget: bool) -> None:
        for alert in alerts:
            if forget:
                _row(alert).delete()
            else:
                _row(alert).update(is_settled=True)


class Memory:
    """The book of a process that cannot reach the database: it begins with what it last saw there."""

    def __init__(self, alerts: Iterable[Alert] = ()) -> None:
        self._alerts = {(alert.kind, alert.key): alert for alert in alerts}
        self._settled: list[Alert] = []

    def standing(self) -> list[Alert]:
        return list(self._alerts.values())

    def add(self, alert: Alert) -> Alert | None:
        self._alerts[alert.kind, alert.key] = alert
        return alert

    def change(self, alert: Alert) -> None:
        self._alerts[alert.kind, alert.key] = alert

    def still(self, alerts: Sequence[Alert], at: int) -> None:
        for alert in alerts:
            self.change(replace(alert, seen_at=at))

    def hear(self, alert: Alert, channel: str, heard: Heard) -> Alert | None:
        news = alert.with_heard(channel, heard)
        self.change(news)
        return news

    def settle(self, alerts: Iterable[Alert], *, forget: bool) -> None:
        for alert in alerts:
            self._alerts.pop((alert.kind, alert.key), None)
            self._settled += [] if forget else [alert]

    def hand_over(self, rows: Rows) -> None:
        """What was told meanwhile is not told again, and what was over is."""
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


def _row(alert: Alert) -> QuerySet[Row]:
    return Row.objects.none() if alert.number is None else Row.objects.filter(pk=alert.number)


def _facts(alert: Alert) -> dict[str, str | int | None]:
    return {
        "kind": alert.kind.value,
        "words": alert.words,
        "link": alert.link,
        "size": alert.size,
        "seen_at": alert.seen_at,
        "resolved_at": alert.resolved_at,
    }
