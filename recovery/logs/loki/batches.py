"""Reads whole batches of lines: of each ns all lines or none, whatever an answer was cut to.

An answer that is as long as was asked for may end within a ns, and which lines of that ns it has is anybody's guess.
So that ns is left to the next batch; when there is nothing else in the answer, more is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recovery.errors import StoreError
from recovery.logs.base import LogGap
from recovery.logs.loki.client import LokiClient, LokiEntry


@dataclass(frozen=True, slots=True)
class LokiBatch:
    """Lines in their order, oldest first; all there are from `start` to before `end`."""

    entries: Sequence[LokiEntry]
    start: int
    end: int
    is_cut: bool = False  # more was there in the span that was asked for
    gap: LogGap | None = None


async def forward(asking: LokiClient, selectors: Sequence[str], start: int, end: int, limit: int) -> LokiBatch:
    """Reads the oldest lines of the span."""
    return await _all(asking, selectors, start, end, limit, is_backward=False)


async def backward(asking: LokiClient, selectors: Sequence[str], start: int, end: int, limit: int) -> LokiBatch:
    """Reads the newest lines of the span."""
    return await _all(asking, selectors, start, end, limit, is_backward=True)


def in_order(entries: Iterable[LokiEntry]) -> list[LokiEntry]:
    """Returns each line once, by ns, stream and text. Of one ns Loki gives the lines in an order that changes."""
    once = {entry.key: entry for entry in entries}
    return sorted(once.values(), key=lambda entry: (entry.at, entry.stream, entry.text))


async def _all(
    asking: LokiClient, selectors: Sequence[str], start: int, end: int, limit: int, *, is_backward: bool
) -> LokiBatch:
    """Reads several selectors, as far as all of them have come. No selector: nothing could be asked for."""
    fetched = (_fetched(asking, one, start, end, limit, is_backward=is_backward) for one in selectors)
    batches = await asyncio.gather(*fetched)
    start, end = max((one.start for one in batches), default=start), min((one.end for one in batches), default=end)
    return LokiBatch(
        in_order(entry for batch in batches for entry in batch.entries if start <= entry.at < end),
        start,
        end,
        is_cut=any(batch.is_cut for batch in batches),
        gap=next((one.gap for one in batches if one.gap and (one.start, one.end) == (start, end)), None),
    )


async def _fetched(asking: LokiClient, logql: str, start: int, end: int, limit: int, *, is_backward: bool) -> LokiBatch:
    found, is_cut = await asking.lines(logql, start, end, limit, is_backward=is_backward)
    if not is_cut or not found:
        return LokiBatch(in_order(found), start, end)
    if len({entry.at for entry in found}) == 1 and limit < asking.most:
        found, is_cut = await asking.lines(logql, start, end, asking.most, is_backward=is_backward)
        if not is_cut:
            return LokiBatch(in_order(found), start, end)
    last = min(entry.at for entry in found) if is_backward else max(entry.at for entry in found)
    whole = [entry for entry in found if entry.at != last]
    if not whole:
        return await _crowded(asking, logql, start, end, found, is_backward=is_backward)
    if is_backward:
        return LokiBatch(in_order(whole), last + 1, end, is_cut=True)
    return LokiBatch(in_order(whole), start, last, is_cut=True)


async def _crowded(
    asking: LokiClient, logql: str, start: int, end: int, found: Sequence[LokiEntry], *, is_backward: bool
) -> LokiBatch:
    """Returns a batch of one ns with more lines than Loki gives at once. What it does not give is said."""
    entries, at = in_order(found), found[0].at
    try:
        total = await asking.count(logql, at)
    except StoreError:
        total = None
    lost = None if total is None else total - len(entries)
    reason = f"Loki returns at most {len(found):,} lines per timestamp, and this one has more"
    gap = LogGap(reason, lost) if lost is None or lost > 0 else None
    if is_backward:
        return LokiBatch(entries, at, end, is_cut=True, gap=gap)
    return LokiBatch(entries, start, at + 1, is_cut=True, gap=gap)
