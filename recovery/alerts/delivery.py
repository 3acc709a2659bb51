"""Delivers to an alert channel of any kind: one attempt, within five seconds."""

from __future__ import annotations

from recovery.alerts import smtp
from recovery.domain.alerts.channels import Channel, Webhook
from recovery.domain.alerts.messages import AlertMessage
from recovery.stores.http import webhooks
from recovery.stores.send_deadline import CancellableSockets, run_within

SECONDS = 5.0  # a slower channel would delay the messages of the others


def check_channel(channel: Channel) -> str:
    """Checks that a message could be sent, without one. Returns what could not be tried, or "". Raises NotDelivered."""

    def attempt(lifeline: CancellableSockets) -> str:
        if isinstance(channel, Webhook):
            return webhooks.reach(channel, SECONDS, lifeline)
        return smtp.reach(channel, SECONDS, lifeline)

    return run_within(SECONDS, attempt)


def deliver(channel: Channel, told: AlertMessage, within_seconds: float | None = None) -> str:
    """Sends a message; returns what went wrong on the way though it was taken, else "". Raises NotDelivered."""
    seconds = within_seconds or SECONDS

    def attempt(lifeline: CancellableSockets) -> str:
        if isinstance(channel, Webhook):
            return webhooks.post(channel, told, seconds, lifeline)
        return smtp.send(channel, told, seconds, lifeline)

    return run_within(seconds, attempt)
