"""One attempt at a channel, of whatever kind, within five seconds."""

from __future__ import annotations

from recovery.connections import mail, webhooks
from recovery.connections.outbound import Lifeline, within
from recovery.domain.channels import Channel, Webhook
from recovery.domain.messages import Message

SECONDS = 5.0  # whoever needs longer holds up what the others are to hear


def reach(channel: Channel) -> str:
    """Whether a message could be sent now, without one. What could not be tried, else "". Raises NotDelivered."""

    def attempt(lifeline: Lifeline) -> str:
        if isinstance(channel, Webhook):
            return webhooks.reach(channel, SECONDS, lifeline)
        return mail.reach(channel, SECONDS, lifeline)

    return within(SECONDS, attempt)


def deliver(channel: Channel, told: Message, within_seconds: float | None = None) -> str:
    """What went wrong on the way though it was taken, else "". Raises NotDelivered."""
    seconds = within_seconds or SECONDS

    def attempt(lifeline: Lifeline) -> str:
        if isinstance(channel, Webhook):
            return webhooks.post(channel, told, seconds, lifeline)
        return mail.send(channel, told, seconds, lifeline)

    return within(seconds, attempt)
