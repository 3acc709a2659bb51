"""Presents alerts and their notification channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recovery.domain.ages import age
from recovery.domain.alerts import Alert, AlertKind, Event, Terms
from recovery.domain.channels import Alerting, Channel
from recovery.reads.outlets import Outlet

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
    Event.FIRING: "notified",
    Event.WORSE: "notified: worse",
    Event.REMINDER: "reminded",
    Event.RESOLVED: "notified: resolved",
}


@dataclass(frozen=True, slots=True)
class Told:
    """Last notification of an alert to one channel; `at` None: none yet."""

    channel: str
    words: str
    at: int | None


@dataclass(frozen=True, slots=True)
class Line:
    alert: Alert
    title: str
    lasted: str
    told: tuple[Told, ...]


@dataclass(frozen=True, slots=True)
class Card:
    """Notification channel with its state; `outlet` None: the state is unknown."""

    channel: Channel
    outlet: Outlet | None
    state: str
    words: str
    kinds: str


def firing(alerts: Sequence[Alert], alerting: Alerting, now: int) -> list[Line]:
    """Returns a line per firing alert, with the channels that were or will be notified of it."""
    return [_line(alert, _of_all(alert, alerting), now) for alert in alerts]


def over(alerts: Sequence[Alert]) -> list[Line]:
    """Returns a line per resolved alert, with the channels that were notified of it."""
    return [_line(alert, sorted(alert.heard), alert.resolved_at or alert.seen_at) for alert in alerts]


def cards(alerting: Alerting, outlets: Mapping[str, Outlet] | None) -> list[Card]:
    """Returns a card per channel. `outlets` None: the state store does not answer."""
    return [_card(channel, alerting.terms, outlets) for channel in alerting.channels]


def _of_all(alert: Alert, alerting: Alerting) -> list[str]:
    wanted = {channel.name for channel in alerting.channels if alert.kind in channel.kinds}
    return sorted(wanted | set(alert.heard))


def _line(alert: Alert, channels: Sequence[str], end: int) -> Line:
    return Line(alert, TITLES[alert.kind], age(end - alert.since), tuple(_told(alert, name) for name in channels))


def _told(alert: Alert, name: str) -> Told:
    heard = alert.by(name)
    if heard.trying is not None:
        return Told(name, "sending", None)
    return Told(name, _TOLD[heard.event], heard.at) if heard.event in _TOLD else Told(name, "not notified yet", None)


def _card(channel: Channel, terms: Terms, outlets: Mapping[str, Outlet] | None) -> Card:
    outlet = outlets.get(channel.name, Outlet()) if outlets is not None else None
    state, words = _state(outlet)
    wanted = [TITLES[kind].lower() for kind in AlertKind if kind in channel.kinds & terms.kinds]
    kinds = "everything" if len(wanted) == len(AlertKind) else ", ".join(wanted)
    return Card(channel, outlet, state, words, kinds)


def _state(outlet: Outlet | None) -> tuple[str, str]:
    if outlet is None:
        return "unknown", "unknown"
    if outlet.is_failing:
        return "failing", "failing"
    return ("works", "healthy") if outlet.told_at is not None else ("paused", "not used yet")
