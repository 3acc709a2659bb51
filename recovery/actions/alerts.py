"""Sends a test message to one channel for an operator: recorded in the audit first, and sent at once."""

from __future__ import annotations

import secrets
from dataclasses import replace

from recovery import shared_clock
from recovery.actions import audit
from recovery.config import Config
from recovery.connections import channels
from recovery.connections.registry import registry
from recovery.domain.acting import Actor
from recovery.domain.messages import Message
from recovery.errors import BadOrder, NotDelivered, StoreError
from recovery.reads import outlets
from recovery.reads.outlets import Outlet

ACT = "alert test"


def try_out(actor: Actor, name: str, config: Config) -> str:
    """Sends a test message; returns what went wrong on the way though it was taken, else "".

    Raises BadOrder, NotRecorded, and NotDelivered: the message was not taken, or it is not known.
    """
    channel = config.alerting.channel(name)
    if channel is None:
        raise BadOrder(f"There is no channel named {name!r}.")
    audit.note(actor, ACT, body={"channel": channel.name, "target": channel.target})
    at = shared_clock.now()
    told = Message(secrets.token_hex(8), at, environment=config.environment, site=config.public_url)
    try:
        remark = channels.deliver(channel, told)
    except NotDelivered as error:
        _keep(name, Outlet(failed_at=at, trouble=str(error)))
        raise
    _keep(name, Outlet(told_at=at, failed_at=at if remark else None, trouble=remark))
    return remark


def _keep(name: str, outlet: Outlet) -> None:
    """Stores the result: a success ends the channel's back-off. A failure neither prolongs it nor clears `told_at`."""
    try:
        store = registry().state()
        if outlet.told_at is None:
            known = outlets.read(store).get(name, Outlet())
            outlet = replace(known, failed_at=outlet.failed_at, trouble=outlet.trouble, tries=max(1, known.tries))
        outlets.write(store, name, outlet)
    except StoreError:
        return  # the caller reports how it went
