"""Presents alerts and their notification channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recovery.alerts.channel_health import ChannelHealth
from recovery.domain.alerts.channels import Alerting, Channel
from recovery.domain.alerts.types import AlertEvent, AlertKind, AlertRecord, AlertSettings
from recovery.domain.time_units import age

TITLES = {
    AlertKind.ABANDONED: "Abandoned jobs",
    AlertKind.QUARANTINE: "Quarantined jobs",
    AlertKind.BREAKER: "Breaker open",
    AlertKind.PAUSE: "Auto-recovery paused",
    AlertKind.GATE: "Gate closed",
    AlertKind.SCANNER: "Scanner refused",
    AlertKind.N8N: "n8n",
    AlertKind.UNREADABLE: "Unreadable store",
    AlertKind.CONSOLE: "Another Unstall",
    AlertKind.AUDIT: "Audit heads not sent",
    AlertKind.SCHEDULER: "No scheduler",
}
_TOLD = {
    AlertEvent.FIRING: "notified",
    AlertEvent.WORSE: "notified: worse",
    AlertEvent.REMINDER: "reminded",
    AlertEvent.RESOLVED: "notified: resolved",
}


@dataclass(frozen=True, slots=True)
class AlertNotificationCell:
    """Last notification of an alert to one channel; `at` None: none yet."""

    channel: str
    words: str
    at: int | None


@dataclass(frozen=True, slots=True)
class AlertLine:
    alert: AlertRecord
    title: str
    lasted: str
    told: tuple[AlertNotificationCell, ...]


@dataclass(frozen=True, slots=True)
class AlertChannelCard:
    """Notification channel with its state; `outlet` None: the state is unknown."""

    channel: Channel
    outlet: ChannelHealth | None
    state: str
    words: str
    kinds: str


def firing(alerts: Sequence[AlertRecord], alerting: Alerting, now: int) -> list[AlertLine]:
    """Returns a line per firing alert, with the channels that were or will be notified of it."""
    return [_line(alert, _of_all(alert, alerting), now) for alert in alerts]


def resolved_lines(alerts: Sequence[AlertRecord]) -> list[AlertLine]:
    """Returns a line per resolved alert, with the channels that were notified of it."""
    return [_line(alert, sorted(alert.heard), alert.resolved_at or alert.seen_at) for alert in alerts]


def cards(alerting: Alerting, outlets: Mapping[str, ChannelHealth] | None) -> list[AlertChannelCard]:
    """Returns a card per channel. `outlets` None: the state store does not answer."""
    return [_card(channel, alerting.terms, outlets) for channel in alerting.channels]


def _of_all(alert: AlertRecord, alerting: Alerting) -> list[str]:
    wanted = {channel.name for channel in alerting.channels if alert.kind in channel.kinds}
    return sorted(wanted | set(alert.heard))


def _line(alert: AlertRecord, channels: Sequence[str], end: int) -> AlertLine:
    return AlertLine(alert, TITLES[alert.kind], age(end - alert.since), tuple(_told(alert, name) for name in channels))


def _told(alert: AlertRecord, name: str) -> AlertNotificationCell:
    heard = alert.by(name)
    if heard.trying is not None:
        return AlertNotificationCell(name, "sending", None)
    return (
        AlertNotificationCell(name, _TOLD[heard.event], heard.at)
        if heard.event in _TOLD
        else AlertNotificationCell(name, "not notified yet", None)
    )


def _card(channel: Channel, terms: AlertSettings, outlets: Mapping[str, ChannelHealth] | None) -> AlertChannelCard:
    outlet = outlets.get(channel.name, ChannelHealth()) if outlets is not None else None
    state, words = _state(outlet)
    wanted = [TITLES[kind].lower() for kind in AlertKind if kind in channel.kinds & terms.kinds]
    kinds = "everything" if len(wanted) == len(AlertKind) else ", ".join(wanted)
    return AlertChannelCard(channel, outlet, state, words, kinds)


def _state(outlet: ChannelHealth | None) -> tuple[str, str]:
    if outlet is None:
        return "unknown", "unknown"
    if outlet.is_failing:
        return "failing", "failing"
    return ("works", "healthy") if outlet.told_at is not None else ("paused", "not used yet")
