"""Presents /tuning: workers with their chart and numbers, and the running queues with their measured recoveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import Error

from dashboard.charts.recovery import Picture, picture
from recovery.domain.ages import took
from recovery.domain.tuning.findings import plain, spoken
from recovery.domain.tuning.prediction import predict
from recovery.domain.tuning.report import Outlook
from recovery.domain.tuning.seen import Running, Seen
from recovery.domain.tuning.timing import Timing
from recovery.reads import incidents
from recovery.reads.incidents import Recovery

HOURS = 7 * 24  # over which recoveries are measured
_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting. `is_changed`: the proposed value is another."""

    name: str
    now: str
    then: str

    @property
    def is_changed(self) -> bool:
        return self.now != self.then


@dataclass(frozen=True, slots=True)
class Card:
    """One kind of worker. `code`: options that only the author of the worker can set, in its code."""

    outlook: Outlook
    picture: Picture
    rows: tuple[Row, ...]
    code: str


@dataclass(frozen=True, slots=True)
class Line:
    """One running queue, in words. `foretold` and `measured` are two lines each, the second one small."""

    seen: Seen
    lock: str
    renewed: str
    interval: str
    foretold: tuple[str, str]
    measured: tuple[str, str]


def cards(outlooks: Sequence[Outlook]) -> list[Card]:
    return [_card(one) for one in outlooks]


def lines(running: Running) -> list[Line]:
    return [_line(seen) for seen in running.queues]


def measured() -> Recovery | None:
    """Returns the recovery times of all queues; None: the database does not answer."""
    try:
        return incidents.recovery_times(HOURS)
    except Error:
        return None


def measured_words(said: Recovery | None) -> str:
    if said is None:
        return "unknown, because the database does not answer"
    if said.median is None or said.worst is None:
        return "no data, because no orphaned job was detected and recovered"
    return f"median {took(said.median)}, worst {took(said.worst)}, of {said.count:,}"


def _card(one: Outlook) -> Card:
    said = [("now", one.now), *([("proposed", one.then)] if one.is_changed else [])]
    return Card(one, picture(said), tuple(_rows(one.setup.timing, one.better)), _code(one))


def _rows(now: Timing, then: Timing) -> list[Row]:
    names = ("lock", "renew", "stalled_interval", "shutdown", "pre_stop", "grace")
    titles = ("Lock", "Renew interval", "Stalled interval", "Shutdown timeout", "preStop pause", "Grace period")
    pairs = [(_time(getattr(now, name)), _time(getattr(then, name))) for name in names]
    return [Row(title, *pair) for title, pair in zip(titles, pairs, strict=True)]


def _time(value: float | None) -> str:
    return _UNKNOWN if value is None else spoken(value)


def _code(one: Outlook) -> str:
    """Returns the options as BullMQ's Worker and Bull's `settings` both take them."""
    if not one.is_out_of_reach:
        return ""
    better = one.better
    names = ("lockDuration", "lockRenewTime", "stalledInterval")
    parts = zip(names, (better.lock, better.renew, better.stalled_interval), strict=True)
    return "\n".join(f"{name}: {plain(value * 1000)}," for name, value in parts)


def _line(seen: Seen) -> Line:
    try:
        found = incidents.recovery_times(HOURS, queue=seen.queue)
    except Error:
        found = None
    return Line(
        seen,
        lock=_UNKNOWN if seen.lock is None else f"≥ {spoken(seen.lock)}",
        renewed=_UNKNOWN if seen.renewed is None else f"≥ {spoken(seen.renewed)}",
        interval=_UNKNOWN if seen.interval is None else f"≥ {spoken(seen.interval)}",
        foretold=_foretold(seen),
        measured=_measured(found),
    )


def _foretold(seen: Seen) -> tuple[str, str]:
    if seen.is_unwatched:
        return "never", "stalled check not running"
    said = predict(seen.timing).recovery if seen.timing else None
    if said is None:
        return "", "not enough data"
    return f"about {spoken(said.about)}", f"typically {spoken(said.typical)}, at worst {spoken(said.worst)}"


def _measured(said: Recovery | None) -> tuple[str, str]:
    if said is None:
        return "", "unknown"
    if said.median is None or said.worst is None:
        return "", "no orphan"
    return f"median {took(said.median)}", f"worst {took(said.worst)}, of {said.count:,}"
