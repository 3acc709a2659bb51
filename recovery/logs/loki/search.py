"""Searches back in time, span by span: each is as long as a Loki can look through in a moment.

How long that is depends on the Loki and on the question, so a quick answer makes the next span longer, and one that was
too much is asked for again in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from recovery.domain.logs.types import LogLine, LogQuery
from recovery.errors import TimedOut
from recovery.logs.base import LogGap
from recovery.logs.loki import positions
from recovery.logs.loki.batches import LokiBatch
from recovery.logs.loki.client import LokiEntry
from recovery.logs.loki.errors import LokiRangeTooWide
from recovery.logs.loki.late_lines import entries_before
from recovery.logs.loki.matching import match_lines
from recovery.logs.loki.positions import LokiPoint

HOUR = 3600 * 10**9
LONGEST = 720 * HOUR  # of one question: Loki's own default is an hour more
SHORTEST = 60 * 10**9  # a Loki that cannot look through a minute says so
_FIRST = HOUR
_QUICK = 0.2  # seconds
_SLOW = 1.0

Fetch = Callable[[int, int], Awaitable[LokiBatch]]  # from, to before
Keep = Callable[[LokiEntry], bool]


@dataclass(slots=True)
class LokiSearch:
    """Search on its way back. `lines`: newest first; `point`: what lies before it has not been read."""

    query: LogQuery
    point: LokiPoint
    floor: int
    limit: int
    lines: list[LogLine] = field(default_factory=list)
    gap: LogGap | None = None
    looked_at: int = 0

    @property
    def is_over(self) -> bool:
        return self.point.at <= self.floor and self.point.is_bare

    async def go(self, fetch: Fetch, keep: Keep, seconds: float) -> None:
        """Reads at least one span, and then on until there are lines enough, or the time is up."""
        clock = asyncio.get_running_loop().time
        began, span = clock(), min(_FIRST, self.point.at - self.floor)
        while not self.is_over and len(self.lines) < self.limit:
            asked, end = clock(), self.point.at + (not self.point.is_bare)
            batch, span = await fetch_span(self._fetching(fetch, end), span)
            await self._take(batch, keep)
            took = clock() - asked
            span = min(LONGEST, span * 4) if took < _QUICK else max(SHORTEST, span // 4) if took > _SLOW else span
            if clock() - began >= seconds:
                return

    def _fetching(self, fetch: Fetch, end: int) -> Callable[[int], Awaitable[LokiBatch]]:
        return lambda span: fetch(max(self.floor, end - span), end)

    async def _take(self, batch: LokiBatch, keep: Keep) -> None:
        entries = [entry for entry in entries_before(batch.entries, self.point) if keep(entry)]
        steps = [(None, entry) for entry in reversed(entries)]
        found = await match_lines(steps, self.query, self.limit - len(self.lines))
        self.lines += found.lines
        self.looked_at += found.looked_at
        if self.point.is_bare or self.point.at != batch.end - 1:
            self.gap = self.gap or batch.gap
        oldest = entries[len(entries) - found.looked_at] if found.looked_at else None
        is_all = found.looked_at == len(entries)
        self.point = LokiPoint(batch.start) if is_all or not oldest else positions.before(oldest.key).point


async def fetch_span(ask: Callable[[int], Awaitable[LokiBatch]], span: int) -> tuple[LokiBatch, int]:
    """Returns the answer for a span, or for a part of it when it was too much; and how long that was.

    Who did not answer in time may not be there at all: he is asked once more, for little.
    """
    is_late = False
    while True:
        try:
            return await ask(span), span
        except LokiRangeTooWide:
            if span <= SHORTEST:
                raise
            span = max(SHORTEST, span // 8)
        except TimedOut:
            if span <= SHORTEST or is_late:
                raise
            is_late, span = True, max(SHORTEST, span // 64)
