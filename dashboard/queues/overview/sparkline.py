"""Draws a queue's last minutes and its states as paths and parts of a small SVG: no script, no inline style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from recovery.domain.queues.types import JobCounts, Rates

SPARK_MINUTES = 40  # what fits beside a row
PITCH = 3  # units from bar to bar; a bar is 2 wide
HEIGHT = 22
WIDTH = SPARK_MINUTES * PITCH
BAR_WIDTH = 1000  # units; fine enough for a state of one job among many
BAR_LEAST = 14  # units: a state that has jobs is seen, however few


@dataclass(frozen=True, slots=True)
class Sparkline:
    """Bars as SVG paths, newest on the right; `unknown` marks the minutes without data."""

    completed: str
    failed: str
    unknown: str
    words: str  # the same for those who do not see it


@dataclass(frozen=True, slots=True)
class StateBarPart:
    """A state of the stacked bar."""

    state: str
    x: int
    width: int


def spark(rates: Rates) -> Sparkline | None:
    """Draws the sparkline; None when there is nothing to draw at all."""
    minutes = list(zip_longest(rates.completed[:SPARK_MINUTES], rates.failed[:SPARK_MINUTES]))
    if not any(part is not None for minute in minutes for part in minute):
        return None
    top = max((completed or 0) + (failed or 0) for completed, failed in minutes) or 1
    good, bad, gaps = [], [], []
    for index, (completed, failed) in enumerate(minutes):
        x = WIDTH - PITCH * index - 2
        if completed is None and failed is None:
            gaps.append(f"M{x} {HEIGHT - 1}v1")
            continue
        foot = HEIGHT - _height(completed or 0, top)
        if completed:
            good.append(f"M{x} {HEIGHT}V{foot}")
        if failed:
            bad.append(f"M{x} {foot}V{max(0, foot - _height(failed, top))}")
    return Sparkline("".join(good), "".join(bad), "".join(gaps), _words(minutes))


def bar(counts: JobCounts) -> tuple[StateBarPart, ...]:
    """Draws the states of a queue side by side, widths by their share. `completed` is left out: it only grows."""
    parts = tuple((state, count) for state, count in states(counts) if count and state != "completed")
    total = sum(count for _, count in parts)
    widths = [max(BAR_LEAST, count * BAR_WIDTH // total) for _, count in parts]
    scale = BAR_WIDTH / sum(widths) if widths else 1.0
    drawn, x = [], 0.0
    for (state, _), width in zip(parts, widths, strict=True):
        drawn.append(StateBarPart(state, round(x), round(x + width * scale) - round(x)))
        x += width * scale
    return tuple(drawn)


def states(counts: JobCounts) -> tuple[tuple[str, int | None], ...]:
    """Returns every state with its count, in the order of the bar and of its words."""
    return (
        ("active", counts.active),
        ("waiting", counts.waiting),
        ("prioritized", counts.prioritized),
        ("paused", counts.paused),
        ("delayed", counts.delayed),
        ("waiting-children", counts.waiting_children),
        ("failed", counts.failed),
        ("completed", counts.completed),
    )


def _height(count: int, top: int) -> int:
    return max(1, count * (HEIGHT - 1) // top) if count else 0


def _words(minutes: Sequence[tuple[int | None, int | None]]) -> str:
    completed, failed = (_sum(column) for column in zip(*minutes, strict=True))
    return f"last {len(minutes)} min: {completed} completed, {failed} failed"


def _sum(column: Iterable[int | None]) -> str:
    known = [count for count in column if count is not None]
    return f"{sum(known):,}" if known else "unknown"
