"""Checks whether the channels of alerts can be reached. Nothing is sent to any."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.config import Config
from recovery.connections import channels
from recovery.domain.channels import Channel
from recovery.errors import NotDelivered
from recovery.management.checkup.findings import Finding, good, warning, wrong


def alerts(config: Config) -> Iterator[Finding]:
    for channel in config.alerting.channels:
        yield _channel(f"alerts {channel.name}", channel)
    if config.alerting.channels and not config.public_url:
        yield warning("alerts", "Messages have no link to the pages.", "Set UNSTALL_PUBLIC_URL.")


def _channel(about: str, channel: Channel) -> Finding:
    try:
        untried = channels.reach(channel)
    except NotDelivered as error:
        return wrong(about, f"{channel.target}: {error}", "Until this is fixed, no notification is sent there.")
    return good(about, untried or f"{channel.target} can be reached.")
