"""Stores alerts and sends them to the channels: each event once, with retries, and within a limit per minute.

1. The findings of a check are merged with the alerts that stand. 2. Changed alerts are stored. 3. Each channel is sent
what is news to it: one message an alert, or a single digest when more is due than it takes within a minute. 4. Alerts
that are over, and whose channels know it, are settled.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from recovery.alerts import delivery
from recovery.alerts.channel_backoff import ChannelBackoff
from recovery.alerts.store import AlertStore
from recovery.config import Config
from recovery.domain.alerts import messages
from recovery.domain.alerts.channels import Alerting, Channel
from recovery.domain.alerts.messages import AlertItem, AlertMessage
from recovery.domain.alerts.types import (
    AlertCheck,
    AlertEvent,
    AlertKind,
    AlertRecord,
    alerts_after_check,
    is_free,
    next_event,
)
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.time_units import SECOND
from recovery.errors import NotDelivered

log = logging.getLogger(__name__)

RUN = 20.0  # seconds of one run: what is left over is sent by the next one
SEEN_EVERY = 15 * SECOND  # ms between two updates of `seen_at` of an unchanged alert
Deliver = Callable[[Channel, AlertMessage], str]
_Name = tuple[AlertKind, str, int | None]


@dataclass(frozen=True, slots=True)
class AlertSender:
    """Channels, the texts that every message has (environment, site), and the function that delivers it."""

    alerting: Alerting
    environment: str = ""
    site: str = ""
    deliver: Deliver = delivery.deliver


class AlertNotifier:
    """Sends alerts, for one thread at a time. `may`: once leadership is lost, the rest is left to the new leader."""

    def __init__(self, sender: AlertSender, outlets: ChannelBackoff, may: May = always_leader) -> None:
        self._sender = sender
        self._terms = sender.alerting.terms
        self._outlets = outlets
        self._may = may
        self._began: int | None = None

    def run(self, book: AlertStore, look: AlertCheck) -> int:
        """Merges the findings, stores and sends; returns how many messages were accepted. Raises django.db.Error."""
        self._began = look.at if self._began is None else self._began
        before = {_name(alert): alert for alert in book.standing()}
        after = list(alerts_after_check(before.values(), look, self._terms, self._began))
        kept = self._keep(book, before, after, look.at)
        told, kept = self._tell(book, kept, look.at)
        self._settle(book, kept, look.at)
        return told

    def _keep(
        self, book: AlertStore, before: Mapping[_Name, AlertRecord], after: Iterable[AlertRecord], at: int
    ) -> list[AlertRecord]:
        kept, still = [], []
        for alert in after:
            old = before.get(_name(alert))
            if old is None:
                if added := book.add(alert):
                    kept.append(added)
                continue
            if replace(alert, seen_at=old.seen_at) != old:
                book.change(alert)
            elif alert.seen_at - old.seen_at >= SEEN_EVERY:
                still.append(alert)
            kept.append(alert)
        if still:
            book.still(still, at)
        return kept

    def _tell(self, book: AlertStore, alerts: list[AlertRecord], at: int) -> tuple[int, list[AlertRecord]]:
        """Sends what is due to each channel; returns how many messages were accepted, and the updated alerts."""
        began, known, told = time.monotonic(), {_name(alert): alert for alert in alerts}, 0
        self._outlets.load()
        for channel in self._sender.alerting.channels:
            due = [(alert, event) for alert in known.values() if (event := self._news(alert, channel, at))]
            room = self._outlets.room(channel.name, self._terms.most, at)
            if not due or room <= 0:
                continue
            for batch in [[one] for one in due] if len(due) <= room else [due]:
                if not self._may() or time.monotonic() - began > RUN:
                    return told, list(known.values())
                changed, is_taken = self._send(book, channel, batch, at + round((time.monotonic() - began) * 1000))
                known |= {_name(alert): alert for alert in changed}
                told += is_taken
                if not is_taken:
                    break  # the other messages would fail too
        return told, list(known.values())

    def _news(self, alert: AlertRecord, channel: Channel, at: int) -> AlertEvent | None:
        if alert.kind not in channel.kinds or not is_free(alert.by(channel.name), at):
            return None
        return next_event(alert, channel.name, self._terms, at)

    def _send(
        self, book: AlertStore, channel: Channel, batch: Sequence[tuple[AlertRecord, AlertEvent]], at: int
    ) -> tuple[list[AlertRecord], bool]:
        """Sends one message: 1. claims alerts that no other process is sending, 2. delivers, 3. records the result."""
        name = channel.name
        claimed = [(book.hear(alert, name, replace(alert.by(name), trying=at)), alert, event) for alert, event in batch]
        items = [AlertItem(event, mine, at, old.by(name).trying is not None) for mine, old, event in claimed if mine]
        if not items:
            return [], True
        said = messages.compose_message(
            items, channel, at, environment=self._sender.environment, site=self._sender.site
        )
        try:
            remark = self._sender.deliver(channel, said)
        except NotDelivered as error:
            self._failed(name, error, at)
            if error.may_have:  # it stays marked, and is told once more with a word of doubt
                return [item.alert for item in items], False
            return [book.hear(mine, name, old.by(name)) or mine for mine, old, _ in claimed if mine], False
        self._outlets.took(name, at, remark)
        return [self._told(book, item, name, at) for item in items], True

    def _told(self, book: AlertStore, item: AlertItem, channel: str, at: int) -> AlertRecord:
        told = item.alert.told(channel, item.event, at)
        return book.hear(item.alert, channel, told.by(channel)) or told

    def _failed(self, channel: str, error: NotDelivered, at: int) -> None:
        if self._outlets.failed(channel, at, str(error), error.retry):
            log.warning("alerts cannot be sent to %s: %s", channel, error)

    def _settle(self, book: AlertStore, alerts: Iterable[AlertRecord], at: int) -> None:
        over = [alert for alert in alerts if alert.resolved_at is not None and not self._is_awaited(alert, at)]
        blips = [alert for alert in over if not alert.heard and not alert.is_ripe(self._terms)]
        book.settle(blips, forget=True)
        book.settle([alert for alert in over if alert not in blips], forget=False)

    def _is_awaited(self, alert: AlertRecord, at: int) -> bool:
        """Returns True if a channel has not been told yet that the alert is over."""
        return any(
            alert.kind in channel.kinds and next_event(alert, channel.name, self._terms, at)
            for channel in self._sender.alerting.channels
        )


def sender_of(config: Config) -> AlertSender:
    return AlertSender(config.alerting, config.environment, config.public_url)


def _name(alert: AlertRecord) -> _Name:
    """Returns the identity of an alert, with its number: an ended and a newer alert may have the same key."""
    return alert.kind, alert.key, alert.number
