"""Output of `manage.py drill`: a line for each event, and a table of the results."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.domain.drills.plan import ExpectedStage, predicted, total_stage
from recovery.domain.drills.results import PARTS, DrillRound
from recovery.domain.identifiers import printable
from recovery.drills.runner import DrillEvent, DrillReport

_UNKNOWN = "?"
_FIRST = {"picked up": "a worker has the job", "signal": "signal sent to its worker"}


def event_text(event: DrillEvent) -> str:
    """Returns one line for the event."""
    if event.round is None:
        return f"  round {event.number}  {_seconds(event.at):>9}  {_FIRST.get(event.what, event.what)}"
    one = event.round
    total = f", {_seconds(one.total)} after the signal" if one.total is not None else ""
    return f"round {one.number}: {one.end.value}{total}.{' ' + printable(one.says) if one.says else ''}"


def report_text(drill: DrillReport) -> str:
    return "\n".join((*_table(drill), "", *_summary(drill)))


def _table(drill: DrillReport) -> Iterator[str]:
    """Yields a line for each stage of each round, and for each predicted stage."""
    for one in drill.rounds:
        yield f"Round {one.number}: {one.end.value}; its job had run for {_seconds(one.wait)}."
        for stage in one.stages:
            yield f"  {stage.stage.value:<16} {_seconds(stage.took):>9}   at {_seconds(stage.at):>9}"
        if one.total is not None:
            yield f"  {'in all':<16} {_seconds(one.total):>9}"
        yield from _parts(one, drill)


def _parts(one: DrillRound, drill: DrillReport) -> Iterator[str]:
    if not one.end.is_recovery:
        return
    took = {name: one.took(name) for name in PARTS}
    for known in predicted(drill.plan):
        yield f"  {known.name + ':':<16} {_seconds(took[known.name]):>9}   predicted {_range(known)}"


def _summary(drill: DrillReport) -> Iterator[str]:
    summary = drill.summary
    if summary.p50 is not None:
        yield (
            f"Time to recovery, {drill.plan.library.label} {printable(drill.version)}: p50 {_seconds(summary.p50)}, "
            "worst "
            f"{_seconds(summary.worst)} ({summary.recovered} of {summary.rounds} rounds)."
        )
    else:
        yield "No round ended in a recovery."
    known = total_stage(predicted(drill.plan))
    yield f"Predicted: {_range(known)}." if known else "Predicted: never, because no worker takes it over."
    if drill.says:
        yield drill.says
    left = f"Keys of {drill.base} may remain: {printable(drill.left)}"
    yield left if drill.cleaned is None else f"Cleaned up: {drill.cleaned} keys of {drill.base}."


def _range(known: ExpectedStage) -> str:
    return f"{_seconds(known.typical)} ({_seconds(known.at_least)} to {_seconds(known.at_most)})"


def _seconds(ms: int | None) -> str:
    return _UNKNOWN if ms is None else f"{ms / 1000:.2f} s"
