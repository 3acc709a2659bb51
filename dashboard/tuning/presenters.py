"""Presents /tuning: workers with their chart and numbers, and the running queues with their measured recoveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import Error

from dashboard.tuning.recovery_chart import RecoveryChart, picture
from recovery.domain.time_units import elapsed
from recovery.domain.tuning.findings import number_text, seconds_text
from recovery.domain.tuning.observed import ObservedQueue, ObservedSettings
from recovery.domain.tuning.prediction import predict
from recovery.domain.tuning.report import WorkerAssessment
from recovery.domain.tuning.timing import WorkerTiming
from recovery.reads.stuck import incidents
from recovery.reads.stuck.incidents import RecoveryTimes

HOURS = 7 * 24  # over which recoveries are measured
_UNKNOWN = "–"


@dataclass(frozen=True, slots=True)
class TuningSettingRow:
    """A setting. `is_changed`: the proposed value is another."""

    name: str
    now: str
    then: str

    @property
    def is_changed(self) -> bool:
        return self.now != self.then


@dataclass(frozen=True, slots=True)
class WorkerTuningCard:
    """A kind of worker. `code`: options that only the author of the worker can set, in its code."""

    outlook: WorkerAssessment
    picture: RecoveryChart
    rows: tuple[TuningSettingRow, ...]
    code: str


@dataclass(frozen=True, slots=True)
class QueueTuningLine:
    """A running queue, in words. `foretold` and `measured` are two lines each, the second one small."""

    seen: ObservedQueue
    lock: str
    renewed: str
    interval: str
    foretold: tuple[str, str]
    measured: tuple[str, str]


def cards(outlooks: Sequence[WorkerAssessment]) -> list[WorkerTuningCard]:
    return [_card(one) for one in outlooks]


def lines(running: ObservedSettings) -> list[QueueTuningLine]:
    return [_line(seen) for seen in running.queues]


def measured_recovery() -> RecoveryTimes | None:
    """Returns the recovery times of all queues; None: the database does not answer."""
    try:
        return incidents.recovery_times(HOURS)
    except Error:
        return None


def measured_words(said: RecoveryTimes | None) -> str:
    if said is None:
        return "unknown, because the database does not answer"
    if said.median is None or said.worst is None:
        return "no data, because no orphaned job was detected and recovered"
    return f"median {elapsed(said.median)}, worst {elapsed(said.worst)}, of {said.count:,}"


def _card(one: WorkerAssessment) -> WorkerTuningCard:
    said = [("now", one.now), *([("proposed", one.then)] if one.is_changed else [])]
    return WorkerTuningCard(one, picture(said), tuple(_rows(one.setup.timing, one.better)), _code(one))


def _rows(now: WorkerTiming, then: WorkerTiming) -> list[TuningSettingRow]:
    names = ("lock", "renew", "stalled_interval", "shutdown", "pre_stop", "grace")
    titles = ("Lock", "Renew interval", "Stalled interval", "Shutdown timeout", "preStop pause", "Grace period")
    pairs = [(_time(getattr(now, name)), _time(getattr(then, name))) for name in names]
    return [TuningSettingRow(title, *pair) for title, pair in zip(titles, pairs, strict=True)]


def _time(value: float | None) -> str:
    return _UNKNOWN if value is None else seconds_text(value)


def _code(one: WorkerAssessment) -> str:
    """Returns the options as BullMQ's Worker and Bull's `settings` both take them."""
    if not one.is_out_of_reach:
        return ""
    better = one.better
    names = ("lockDuration", "lockRenewTime", "stalledInterval")
    parts = zip(names, (better.lock, better.renew, better.stalled_interval), strict=True)
    return "\n".join(f"{name}: {number_text(value * 1000)}," for name, value in parts)


def _line(seen: ObservedQueue) -> QueueTuningLine:
    try:
        found = incidents.recovery_times(HOURS, queue=seen.queue)
    except Error:
        found = None
    return QueueTuningLine(
        seen,
        lock=_UNKNOWN if seen.lock is None else f"≥ {seconds_text(seen.lock)}",
        renewed=_UNKNOWN if seen.renewed is None else f"≥ {seconds_text(seen.renewed)}",
        interval=_UNKNOWN if seen.interval is None else f"≥ {seconds_text(seen.interval)}",
        foretold=_foretold(seen),
        measured=_measured(found),
    )


def _foretold(seen: ObservedQueue) -> tuple[str, str]:
    if seen.is_unwatched:
        return "never", "stalled check not running"
    said = predict(seen.timing).recovery if seen.timing else None
    if said is None:
        return "", "not enough data"
    return (
        f"about {seconds_text(said.about)}",
        f"typically {seconds_text(said.typical)}, at worst {seconds_text(said.worst)}",
    )


def _measured(said: RecoveryTimes | None) -> tuple[str, str]:
    if said is None:
        return "", "unknown"
    if said.median is None or said.worst is None:
        return "", "no orphan"
    return f"median {elapsed(said.median)}", f"worst {elapsed(said.worst)}, of {said.count:,}"
