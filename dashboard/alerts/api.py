"""Serves /alerts: firing and resolved alerts, and whether the channels deliver notifications."""

from __future__ import annotations

from django.http import HttpRequest
from ninja import Field, Router, Schema

from dashboard.accounts.token_scopes import TokenScope
from dashboard.alerts.views import known_outlets
from dashboard.api.auth import requires_scope
from recovery import config
from recovery.alerts import queries as reads
from recovery.domain.alerts import types as domain
from recovery.domain.alerts.types import AlertKind

router = Router(tags=["Alerts"])


class AlertNotification(Schema):
    """The last notification of one channel about an alert."""

    channel: str
    event: str
    at: int


class AlertDetail(Schema):
    """A problem from its start until it is resolved."""

    id: int
    kind: AlertKind
    key: str = Field(description="Subject of the alert; each has at most one open alert.")
    words: str
    size: int = Field(description="How many jobs, queues or breakers.")
    since: int
    resolved_at: int | None
    link: str = Field(description="Page with details.")
    told: list[AlertNotification]

    @classmethod
    def of(cls, alert: domain.AlertRecord) -> AlertDetail:
        same = {name: getattr(alert, name) for name in ("kind", "key", "words", "size", "since", "resolved_at", "link")}
        told = [
            AlertNotification(channel=name, event=heard.event.value, at=heard.at)
            for name, heard in alert.heard.items()
            if heard.event
        ]
        return cls(id=alert.number or 0, told=told, **same)


class AlertChannelStatus(Schema):
    """A notification channel."""

    name: str
    medium: str
    target: str = Field(description="The target, with secrets hidden.")
    told_at: int | None
    failed_at: int | None
    trouble: str | None


class AlertList(Schema):
    """Firing and resolved alerts, newest first, at most two hundred of each, and the channels."""

    firing: list[AlertDetail]
    over: list[AlertDetail]
    channels: list[AlertChannelStatus]
    channels_known: bool = Field(
        description="false: the state store does not answer, so the channel states are unknown."
    )


@router.get("/alerts", **requires_scope(TokenScope.READ), response=AlertList, url_name="alerts", summary="Alerts")
def alerts(request: HttpRequest) -> AlertList:
    """Returns firing and resolved alerts, and whether the channels deliver notifications."""
    alerting, fares = config.current().alerting, known_outlets()
    return AlertList(
        firing=[AlertDetail.of(one) for one in reads.firing(alerting.terms)],
        over=[AlertDetail.of(one) for one in reads.resolved_alerts(alerting.terms)],
        channels=[
            AlertChannelStatus(
                name=channel.name,
                medium=channel.medium,
                target=channel.target,
                told_at=outlet.told_at if outlet else None,
                failed_at=outlet.failed_at if outlet else None,
                trouble=(outlet.trouble or None) if outlet else None,
            )
            for channel in alerting.channels
            for outlet in [(fares or {}).get(channel.name)]
        ],
        channels_known=fares is not None,
    )
