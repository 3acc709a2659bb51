"""Health of the channels, shared through the state store, with exponential backoff for channels that fail."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import redis

from recovery.alerts import channel_health
from recovery.alerts.channel_health import ChannelHealth
from recovery.domain.time_units import MINUTE, SECOND
from recovery.errors import ConfigError, StoreError

FIRST = 5 * SECOND  # ms until the first attempt after a failure
LONGEST = 10 * MINUTE
_JITTER = 0.2


class ChannelBackoff:
    """Health and rate limit of the channels; without the state store each process keeps its own."""

    def __init__(self, store: Callable[[], redis.Redis]) -> None:
        self._store = store
        self._known: dict[str, ChannelHealth] = {}
        self._sent: defaultdict[str, list[int]] = defaultdict(list)  # when messages went, in the last minute

    def load(self) -> None:
        """Reads what other processes stored: a test that an admin has just sent ends the backoff of its channel."""
        with suppress(StoreError, ConfigError):
            self._known |= channel_health.read(self._store())

    def room(self, channel: str, most: int, at: int) -> int:
        """Returns how many messages may be sent now; none during the backoff."""
        due = self._known.get(channel, ChannelHealth()).due_at
        if due is not None and at < due <= at + LONGEST:
            return 0
        self._sent[channel] = [when for when in self._sent[channel] if 0 <= at - when < MINUTE]
        return most - len(self._sent[channel])

    def took(self, channel: str, at: int, remark: str = "") -> None:
        """Records a message that was accepted. `remark`: a warning about it."""
        self._sent[channel].append(at)
        self._keep(channel, ChannelHealth(told_at=at, failed_at=at if remark else None, trouble=remark))

    def failed(self, channel: str, at: int, trouble: str, asked: float = 0.0) -> bool:
        """Records a failure; returns True if it is a new one. `asked`: seconds that the channel asks us to wait."""
        known = self._known.get(channel, ChannelHealth())
        # A failed message counts too: it may have been accepted.
        self._sent[channel].append(at)
        pause = min(LONGEST, FIRST * 2 ** min(known.tries, 16)) * random.uniform(1 - _JITTER, 1)  # noqa: S311 -- jitter
        due = at + round(min(LONGEST, max(pause, asked * SECOND)))
        self._keep(channel, replace(known, failed_at=at, trouble=trouble, tries=known.tries + 1, due_at=due))
        return trouble != known.trouble or not known.tries

    def _keep(self, channel: str, outlet: ChannelHealth) -> None:
        self._known[channel] = outlet
        with suppress(StoreError, ConfigError):
            channel_health.write(self._store(), channel, outlet)
