"""Presents /tuning: workers with their chart and numbers, and the running queues with their measured recoveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import Error

from recovery.domain.time_units import elapsed
from recovery.domain.tuning.findings import number_text, seconds_text
from recovery.domain.tuning.observed import ObservedQueue, ObservedSettings
from recovery.domain.tuning.prediction import PredictedShutdown, Prediction, predict
from recovery.domain.tuning.report import WorkerAssessment
from recovery.domain.tuning.timing import WorkerTiming
from recovery.reads.stuck import incidents
from recovery.reads.stuck.incidents import RecoveryTimes

# -- recovery chart
# Draws the predicted recovery after a kill, and the predicted shutdown, as bars on one scale, in percent.


_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 21600, 86400)
_TICKS = 5  # labels that still stand side by side on a phone
_HOUR = 3600


@dataclass(frozen=True, slots=True)
class RecoveryChartBar:
    kind: str  # lock, check, late, pause, ending, spare, cut
    x: str
    width: str


@dataclass(frozen=True, slots=True)
class RecoveryChartMark:
    kind: str  # typical, kill
    x: str


@dataclass(frozen=True, slots=True)
class RecoveryChartLane:
    """A row of bars. `words` say the same to those who do not see it."""

    title: str
    words: str
    bars: tuple[RecoveryChartBar, ...] = ()
    marks: tuple[RecoveryChartMark, ...] = ()


@dataclass(frozen=True, slots=True)
class RecoveryChartTick:
    label: str
    x: str
    anchor: str  # of its text: start, middle, end


@dataclass(frozen=True, slots=True)
class RecoveryChart:
    lanes: tuple[RecoveryChartLane, ...]
    ticks: tuple[RecoveryChartTick, ...]


def picture(said: Sequence[tuple[str, Prediction]]) -> RecoveryChart:
    """Draws a lane for the kill and one for the stop of each prediction, in the given order and on one scale."""
    step = _step(max([1.0, *(end for _, one in said for end in _ends(one))]))
    full = step * _TICKS
    killed = [_killed(title, one, full) for title, one in said]
    stopped = [_stopped(title, one.shutdown, full) for title, one in said if one.shutdown]
    return RecoveryChart((*killed, *stopped), tuple(_tick(index, step) for index in range(_TICKS + 1)))


def _ends(said: Prediction) -> list[float]:
    ends = [said.recovery.worst] if said.recovery else []
    return ends + ([said.shutdown.done, said.shutdown.killed] if said.shutdown else [])


def _step(longest: float) -> float:
    fitting = (step for step in _STEPS if step * _TICKS >= longest)
    return next(fitting, longest / _TICKS)


def _killed(title: str, predicted: Prediction, full: float) -> RecoveryChartLane:
    title, said = f"Worker killed, {title}", predicted.recovery
    if said is None:
        return RecoveryChartLane(title, "no stalled check runs: the job is never recovered")
    lock = said.stages[0].at_most
    bars = (
        _bar("lock", 0, lock, full),
        _bar("check", lock, said.about, full),
        _bar("late", said.about, said.worst, full),
    )
    what = "requeued" if predicted.runs_again else "failed, not run again,"
    words = (
        f"{what} after about {seconds_text(said.about)}; typically {seconds_text(said.typical)}, "
        f"at worst {seconds_text(said.worst)}"
    )
    return RecoveryChartLane(title, words, bars, (RecoveryChartMark("typical", _part(said.typical, full)),))


def _stopped(title: str, said: PredictedShutdown | None, full: float) -> RecoveryChartLane:
    title = f"Worker stopped, {title}"
    if said is None:
        return RecoveryChartLane(title, "unknown")
    end = min(said.done, said.killed)
    bars = [_bar("pause", 0, min(said.pre_stop, said.killed), full), _bar("ending", said.pre_stop, end, full)]
    if said.races:
        bars.append(_bar("cut", said.killed, said.done, full))
        killed, done = seconds_text(said.killed), seconds_text(said.done)
        words = f"SIGKILL after {killed}, but jobs may run until {done}: jobs may be killed"
    else:
        bars.append(_bar("spare", said.done, said.killed, full))
        done, killed = seconds_text(said.done), seconds_text(said.killed)
        words = f"done after {done}, SIGKILL after {killed}: {seconds_text(said.margin)} margin"
    return RecoveryChartLane(title, words, tuple(bars), (RecoveryChartMark("kill", _part(said.killed, full)),))


def _bar(kind: str, start: float, end: float, full: float) -> RecoveryChartBar:
    return RecoveryChartBar(kind, _part(start, full), _part(max(0.0, end - start), full))


def _part(value: float, full: float) -> str:
    return f"{100 * value / full:.2f}%"


def _tick(index: int, step: float) -> RecoveryChartTick:
    at = index * step
    label = f"{number_text(at / _HOUR)} h" if at >= _HOUR else seconds_text(at)
    anchor = "start" if index == 0 else "end" if index == _TICKS else "middle"
    return RecoveryChartTick(label, f"{100 * index / _TICKS:.2f}%", anchor)


# -- presenters


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
