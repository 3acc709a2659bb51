"""Builds the messages for channels: one alert, or many in a digest; as JSON, as Slack takes it, and as mail."""

from __future__ import annotations

import hmac
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from recovery.domain.alerts.channels import Channel, Webhook, WebhookFormat
from recovery.domain.alerts.types import AlertEvent, AlertRecord
from recovery.domain.time_units import age

LISTED = 12  # lines of a digest: what a person still reads on a phone; all are on the page
LINE = 140  # characters of one of them; together they stay below 2,000, which is all that some receivers take
PARTS = 100  # alerts of a digest as JSON
VERSION = 1  # of the JSON
PAGE = "/alerts"
_REPEATED = "This may be a duplicate: an earlier attempt did not finish."


@dataclass(frozen=True, slots=True)
class AlertItem:
    """An alert in a message, with its event."""

    event: AlertEvent
    alert: AlertRecord
    at: int
    is_repeated: bool = False

    @property
    def sentence(self) -> str:
        alert = self.alert
        end = self.at if alert.resolved_at is None else alert.resolved_at
        lasted = age(end - alert.since)
        match self.event:
            case AlertEvent.RESOLVED:
                return f"Resolved after {lasted}: {alert.words}"
            case AlertEvent.REMINDER:
                return f"Still firing after {lasted}: {alert.words}"
            case AlertEvent.WORSE:
                return f"Worse: {alert.words}"
        return alert.words


@dataclass(frozen=True, slots=True)
class AlertMessage:
    """A message. `id` is the same on a repeated attempt. `site`: base URL of the pages, "" if not configured."""

    id: str
    at: int
    items: tuple[AlertItem, ...] = ()
    environment: str = ""
    site: str = ""

    @property
    def is_test(self) -> bool:
        return not self.items

    @property
    def is_digest(self) -> bool:
        return len(self.items) > 1

    @property
    def event(self) -> str:
        if self.is_test:
            return AlertEvent.TEST.value
        return "digest" if self.is_digest else self.items[0].event.value

    @property
    def title(self) -> str:
        """Returns the title in one line. Its first words name the subject: a lock screen shows no more."""
        where = f"[{self.environment}] " if self.environment else ""
        return f"{where}{self._headline}"

    @property
    def link(self) -> str:
        if not self.site:
            return ""
        return self.site + (PAGE if len(self.items) != 1 else self.items[0].alert.link)

    @property
    def lines(self) -> tuple[str, ...]:
        """Returns the sentences below the title."""
        if self.is_test:
            return ("This is a test, sent from the Alerts page. Nothing is wrong.",)
        listed = [f"– {_cut(item.sentence)}" for item in self.items[:LISTED]] if self.is_digest else []
        more = len(self.items) - LISTED
        return (
            *listed,
            *([f"– and {more:,} more"] if more > 0 else []),
            *([_REPEATED] if any(item.is_repeated for item in self.items) else []),
        )

    @property
    def _headline(self) -> str:
        if self.is_test:
            return "Unstall: a test"
        if not self.is_digest:
            return self.items[0].sentence
        counted = Counter(item.event for item in self.items)
        return (
            f"{len(self.items):,} alerts: {', '.join(f'{counted[one]:,} {one}' for one in AlertEvent if counted[one])}"
        )


def compose_message(
    items: Sequence[AlertItem], channel: Channel, at: int, *, environment: str, site: str
) -> AlertMessage:
    names = [item.alert.name(channel.name) for item in items]
    id = names[0] if len(names) == 1 else sha256("\n".join(sorted(names)).encode()).hexdigest()[:32]
    return AlertMessage(id, at, tuple(items), environment, site)


def body(told: AlertMessage, webhook: Webhook) -> bytes:
    made = _as_slack(told) if webhook.format is WebhookFormat.SLACK else _as_json(told)
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def signature(secret: str, body: bytes) -> str:
    """Returns the HMAC over the bytes of the body, which the receiver computes as well."""
    return f"sha256={hmac.new(secret.encode(), body, sha256).hexdigest()}"


def text(told: AlertMessage) -> str:
    """Returns the text of a mail."""
    lines = (told.title, "", *told.lines, *(["", told.link] if told.link else []), "", f"Sent {_exactly(told.at)}.")
    return "\n".join(lines) + "\n"


def _as_json(told: AlertMessage) -> dict[str, Any]:
    return {
        "version": VERSION,
        "id": told.id,
        "event": told.event,
        "at": told.at,
        "environment": told.environment,
        "title": told.title,
        "link": told.link or None,
        "repeated": any(item.is_repeated for item in told.items),
        "alerts": [_item(item, told.site) for item in told.items[:PARTS]],
        "left_out": max(0, len(told.items) - PARTS),
    }


def _item(item: AlertItem, site: str) -> dict[str, Any]:
    alert = item.alert
    return {
        "event": item.event.value,
        "kind": alert.kind.value,
        "key": alert.key,
        "words": alert.words,
        "size": alert.size,
        "since": alert.since,
        "resolved_at": alert.resolved_at,
        "link": f"{site}{alert.link}" if site else None,
    }


def _as_slack(told: AlertMessage) -> dict[str, Any]:
    """Returns the Slack payload. Every receiver of this kind takes plain text; blocks are Slack's own."""
    link = [f"<{told.link}|Open>"] if told.link else []
    return {"text": "\n".join([*map(_escaped, (f"{_MARKS[told.event]} {told.title}", *told.lines)), *link])}


# Words, because colour and signs are not everybody's.
_MARKS = {
    "firing": "FIRING",
    "worse": "WORSE",
    "reminder": "STILL FIRING",
    "resolved": "RESOLVED",
    "digest": "DIGEST",
    "test": "TEST",
}


def _escaped(line: str) -> str:
    """Escapes a line as Slack requires; so no name of a queue can mention everyone in the channel."""
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _cut(sentence: str) -> str:
    return sentence if len(sentence) <= LINE else f"{sentence[: LINE - 1]}…"


def _exactly(at: int) -> str:
    return f"{datetime.fromtimestamp(at / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
