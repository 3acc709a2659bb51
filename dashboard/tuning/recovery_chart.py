"""Draws the predicted recovery after a kill, and the predicted shutdown, as bars on one scale, in percent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.domain.tuning.findings import number_text, seconds_text
from recovery.domain.tuning.prediction import PredictedShutdown, Prediction

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
