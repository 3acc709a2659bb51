"""Sends a test message to one channel for an operator: recorded in the audit first, and sent at once."""

from __future__ import annotations

import secrets
from dataclasses import replace

from recovery import shared_clock
from recovery.actions.audit import audit_log
from recovery.alerts import channel_health, delivery
from recovery.alerts.channel_health import ChannelHealth
from recovery.config import Config
from recovery.domain.actions.types import Actor
from recovery.domain.alerts.messages import AlertMessage
from recovery.errors import BadOrder, NotDelivered, StoreError
from recovery.stores.registry import registry

ACT = "alert test"


def send_test(actor: Actor, name: str, config: Config) -> str:
    """Sends a test message; returns what went wrong on the way though it was taken, else "".

    Raises BadOrder, NotRecorded, and NotDelivered: the message was not taken, or it is not known.
    """
    channel = config.alerting.channel(name)
    if channel is None:
        raise BadOrder(f"There is no channel named {name!r}.")
    audit_log.note(actor, ACT, body={"channel": channel.name, "target": channel.target})
    at = shared_clock.now()
    told = AlertMessage(secrets.token_hex(8), at, environment=config.environment, site=config.public_url)
    try:
        remark = delivery.deliver(channel, told)
    except NotDelivered as error:
        _keep(name, ChannelHealth(failed_at=at, trouble=str(error)))
        raise
    _keep(name, ChannelHealth(told_at=at, failed_at=at if remark else None, trouble=remark))
    return remark


def _keep(name: str, outlet: ChannelHealth) -> None:
    """Stores the result: a success ends the channel's back-off. A failure neither prolongs it nor clears `told_at`."""
    try:
        store = registry().state()
        if outlet.told_at is None:
            known = channel_health.read(store).get(name, ChannelHealth())
            outlet = replace(known, failed_at=outlet.failed_at, trouble=outlet.trouble, tries=max(1, known.tries))
        channel_health.write(store, name, outlet)
    except StoreError:
        return  # the caller reports how it went
