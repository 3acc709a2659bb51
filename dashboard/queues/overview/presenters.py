"""Presents rows of the queue table as the texts and numbers of their cells.

Plain dicts, filled before the template runs: a hundred rows of fifteen cells are rendered while a user waits,
and looking up attributes and running filters in the template would take most of that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from django.urls import reverse

from recovery.domain.identifiers import printable
from recovery.domain.queues.health import RATE_ALARM, QueueProblemKind, has_no_worker
from recovery.domain.queues.types import JobCounts, QueueLibrary, QueueSample, Rates
from recovery.domain.time_units import age
from recovery.reads.queues.overview import OverviewRow

# -- sparkline
# Draws a queue's last minutes and its states as paths and parts of a small SVG: no script, no inline style.


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


# -- presenters


Cells = dict[str, Any]
UNKNOWN = "unknown"
NONE_SUCH = "–"  # what a queue of this kind does not have
_TONES = {
    QueueProblemKind.ABANDONED: "stuck",
    QueueProblemKind.UNATTENDED: "warn",
    QueueProblemKind.FAILING: "warn",
    QueueProblemKind.PAUSED: "warn",
    QueueProblemKind.LATE: "warn",
}


def cells(row: OverviewRow, now: int, *, with_deployment: bool) -> Cells:
    """Returns what one row shows. `now` is the snapshot's moment: ages grow with the numbers, not ahead of them."""
    sample, counts = row.sample, row.sample.counts
    unread = _unread(sample)
    return {
        "id": f"{sample.ref.deployment}-{sample.ref.slug}",
        "url": reverse("queue", args=[sample.ref.deployment, sample.ref.base]),
        "name": _name(row),
        "group": row.group,
        "sub": _sub(sample, with_deployment=with_deployment),
        "paused": bool(sample.is_paused),
        "tone": _row_tone(row),
        "unread": unread,
        "old": "" if unread else row.reason,
        "bar": () if unread else bar(counts),
        "bar_words": _bar_words(sample),
        "waiting": _number(row.ready),
        "active": _number(counts.active),
        "delayed": _number(counts.delayed),
        "failed": _number(counts.failed),
        "stuck": _number(row.stuck),
        "stuck_tone": "stuck" if row.stuck else _tone(row.stuck),
        "failed_tone": "bad" if counts.failed and row.kind is QueueProblemKind.FAILING else _tone(counts.failed),
        "waiting_tone": _tone(row.ready),
        "active_tone": _tone(counts.active),
        "delayed_tone": _tone(counts.delayed),
        "oldest": _oldest(row, now),
        "oldest_tone": "bad" if row.kind is QueueProblemKind.LATE else "" if sample.oldest_waiting_at else "zero",
        "workers": _workers(sample),
        "workers_tone": _workers_tone(sample),
        "stalled_check": _stalled_check(sample),
        "stalled_check_tone": _stalled_check_tone(sample),
        "rate": _number(row.rate) if row.rate is not None else "",
        "spark": spark(sample.rates),
        "failing": UNKNOWN if row.failing is None and row.rate is None else _percent(row.failing),
        "failing_tone": _failing_tone(row),
    }


def _unread(sample: QueueSample) -> str:
    """Returns why the queue has no numbers; "" if it has some, however old."""
    return "" if sample.is_old else sample.error


def _row_tone(row: OverviewRow) -> str:
    if row.reason:
        return "unreadable"
    if row.kind is None:
        return ""
    return "stuck" if row.kind is QueueProblemKind.ABANDONED else "warn"


def _name(row: OverviewRow) -> str:
    """Returns the queue's label; inside a group, without the prefix that the group's heading shows."""
    label = row.sample.ref.label
    return label[len(row.group) + 1 :] if row.group and label.startswith(row.group) else label


def _sub(sample: QueueSample, *, with_deployment: bool) -> str:
    parts = [sample.flavour.label]
    if with_deployment:
        parts.insert(0, printable(sample.ref.deployment))
    if sample.limited_for:
        parts.append("rate limited")
    if sample.flavour.mixed:
        parts.append("mixed generations")
    return " · ".join(parts)


def _bar_words(sample: QueueSample) -> str:
    if _unread(sample):
        return "states unknown"
    known = [f"{count:,} {state}" for state, count in states(sample.counts) if count]
    return ", ".join(known) or ("empty" if sample.counts.waiting is not None else "states unknown")


def _number(count: int | None) -> str:
    return UNKNOWN if count is None else f"{count:,}"


def _tone(count: int | None) -> str:
    return UNKNOWN if count is None else "" if count else "zero"


def _oldest(row: OverviewRow, now: int) -> str:
    if row.sample.oldest_waiting_at is not None:
        return age(now - row.sample.oldest_waiting_at)
    return "–" if row.ready == 0 else UNKNOWN


def _workers(sample: QueueSample) -> str:
    if sample.workers is None:
        return UNKNOWN
    return f"{sample.workers:,}" if sample.workers else "none"


def _workers_tone(sample: QueueSample) -> str:
    if sample.workers is None:
        return UNKNOWN
    if sample.workers:
        return ""
    return "stuck" if sample.counts.active and has_no_worker(sample) else "warn"


def _stalled_check_tone(sample: QueueSample) -> str:
    if sample.counts.active and has_no_worker(sample):
        return "stuck"
    return "zero" if sample.stalled_check_ttl is None else ""


def _stalled_check(sample: QueueSample) -> str:
    """Says when the stalled check may run again. Its key's TTL is known: it ran, and may run again when that ends."""
    if sample.stalled_check_ttl is not None:
        return f"in {age(sample.stalled_check_ttl)}"
    if _unread(sample):
        return UNKNOWN
    if sample.flavour.library is QueueLibrary.TABLE:
        return NONE_SUCH
    return "not running" if sample.workers == 0 else "not recently"


def _percent(part: float | None) -> str:
    if part is None:
        return "–"
    if 0 < part < 0.01:
        return "< 1 %"
    return f"{part * 100:.0f} %"


def _failing_tone(row: OverviewRow) -> str:
    if row.failing is None:
        return UNKNOWN if row.rate is None else "zero"
    return "bad" if row.failing >= RATE_ALARM else "" if row.failing else "zero"
