"""Checks whether the channels of alerts can be reached. Nothing is sent to any."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.alerts import delivery
from recovery.config import Config
from recovery.domain.alerts.channels import Channel
from recovery.errors import NotDelivered
from recovery.management.doctor.findings import DoctorFinding, good, warning, wrong


def alerts(config: Config) -> Iterator[DoctorFinding]:
    for channel in config.alerting.channels:
        yield _channel(f"alerts {channel.name}", channel)
    if config.alerting.channels and not config.public_url:
        yield warning("alerts", "Messages have no link to the pages.", "Set UNSTALL_PUBLIC_URL.")


def _channel(about: str, channel: Channel) -> DoctorFinding:
    try:
        untried = delivery.check_channel(channel)
    except NotDelivered as error:
        return wrong(about, f"{channel.target}: {error}", "Until this is fixed, no notification is sent there.")
    return good(about, untried or f"{channel.target} can be reached.")
