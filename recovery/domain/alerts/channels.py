"""Configures where alerts are sent: webhooks and e-mail. It decides what of addresses and secrets may be shown."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from urllib.parse import urlsplit

from recovery.domain.alerts.types import AlertKind, AlertSettings

EMAIL = "email"  # the name of the channel that is e-mail


class WebhookFormat(StrEnum):
    """Message format that a webhook expects."""

    JSON = "json"
    SLACK = "slack"


class MailEncryption(StrEnum):
    """Transport encryption of e-mail."""

    STARTTLS = "starttls"
    TLS = "tls"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook. `secret` "": messages are not signed. `ca`: file of trusted authorities; "": those of the system."""

    name: str
    url: str = field(repr=False)  # of some receivers the path is the secret
    format: WebhookFormat = WebhookFormat.JSON
    header: str = "X-Unstall-Signature"
    secret: str = field(default="", repr=False)
    ca: str = ""
    kinds: frozenset[AlertKind] = frozenset(AlertKind)

    @property
    def target(self) -> str:
        """Returns the part of the address that may be shown."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"

    @property
    def medium(self) -> str:
        return "Slack webhook" if self.format is WebhookFormat.SLACK else "webhook"


@dataclass(frozen=True, slots=True)
class Mail:
    """Mail server, and the recipients of alerts."""

    host: str
    port: int
    encryption: MailEncryption
    sender: str
    to: tuple[str, ...]
    username: str = ""
    password: str = field(default="", repr=False)
    ca: str = ""
    kinds: frozenset[AlertKind] = frozenset(AlertKind)
    name: str = EMAIL

    @property
    def target(self) -> str:
        return f"{', '.join(self.to)} by {self.server}"

    @property
    def server(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def medium(self) -> str:
        return "e-mail"


Channel = Webhook | Mail


@dataclass(frozen=True, slots=True)
class Alerting:
    """Settings of alerts, and the channels that they are sent to."""

    terms: AlertSettings = field(default_factory=AlertSettings)
    channels: tuple[Channel, ...] = ()

    def channel(self, name: str) -> Channel | None:
        return next((channel for channel in self.channels if channel.name == name), None)
