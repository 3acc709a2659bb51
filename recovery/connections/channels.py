"""Delivers to an alert channel of any kind: one attempt, within five seconds."""

from __future__ import annotations

from recovery.connections import mail, webhooks
from recovery.connections.outbound import Lifeline, within
from recovery.domain.channels import Channel, Webhook
from recovery.domain.messages import Message

SECONDS = 5.0  # a slower channel would delay the messages of the others


def reach(channel: Channel) -> str:
    """Checks that a message could be sent, without one. Returns what could not be tried, or "". Raises NotDelivered."""

    def attempt(lifeline: Lifeline) -> str:
        if isinstance(channel, Webhook):
            return webhooks.reach(channel, SECONDS, lifeline)
        return mail.reach(channel, SECONDS, lifeline)

    return within(SECONDS, attempt)


def deliver(channel: Channel, told: Message, within_seconds: float | None = None) -> str:
    """Sends a message; returns what went wrong on the way though it was taken, else "". Raises NotDelivered."""
    seconds = within_seconds or SECONDS

    def attempt(lifeline: Lifeline) -> str:
        if isinstance(channel, Webhook):
            return webhooks.post(channel, told, seconds, lifeline)
        return mail.send(channel, told, seconds, lifeline)

    return within(seconds, attempt)
