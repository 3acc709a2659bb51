"""Presents fire drills: lines of a table, rounds with their stages, bars to one scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.urls import reverse

from dashboard.base.job_rows import Cells
from recovery.domain.drills import plan as plans
from recovery.domain.drills.plan import DrillPlan, arguments, plan_warnings, predicted, total_stage
from recovery.domain.drills.results import PARTS, DrillRound, DrillStage, DrillStatus, RoundOutcome
from recovery.domain.duration_parser import format_duration
from recovery.domain.identifiers import printable
from recovery.drills.queries import FireDrill

WIDTH = 1000  # units of a bar, whatever it measures
_WORDS = {
    DrillStatus.WAITING: "the scheduler starts it within seconds",
    DrillStatus.RUNNING: "it continues when you leave this page",
    DrillStatus.STOPPED: "stopped and cleaned up",
}
_TONES = {RoundOutcome.LEFT: "stuck", RoundOutcome.TWICE: "warn"}
_SHOWN = tuple(stage for stage in DrillStage if stage is not DrillStage.FAILED)


def line(run: FireDrill) -> Cells:
    """Returns one drill as a line of the list."""
    expected = total_stage(predicted(run.plan))
    return {
        "run": run,
        "url": reverse("drill", args=[run.id]),
        "library": f"{run.plan.library.label} {printable(run.version)}".strip(),
        "settings": settings(run.plan),
        "summary": run.summary,
        "expected": expected,
        "words": _WORDS.get(run.status, ""),
        "who": printable(run.actor.name),
        "tone": "" if all(one.end.is_harmless for one in run.rounds) else "warn",
        "ends": _ends(run.rounds),
        "steps": [(step.number, step.what, step.at) for step in run.under_way],
        "is_now": f"{len(run.rounds) + 1} of {run.plan.rounds}" if run.status is DrillStatus.RUNNING else "",
    }


def detail(run: FireDrill) -> Cells:
    """Returns everything the page of one drill shows."""
    return line(run) | {
        "doubts": plan_warnings(run.plan),
        "command": " ".join(("manage.py drill", *arguments(run.plan))),
        "stages": _heads(run.rounds),
        "rounds": [_round(one) for one in run.rounds],
        "compared": list(_compared(run)),
        "bars": list(_bars(run)),
        "parts": PARTS,
    }


def settings(plan: DrillPlan) -> str:
    """Describes the tried worker settings in one line."""
    said = [
        f"lock {format_duration(plan.lock)}",
        f"renew {format_duration(plan.renew)}",
        f"stalled check {format_duration(plan.stalled_interval)}",
        f"max stalled {plan.max_stalled}",
        f"{plan.workers} workers" if plan.workers != 1 else "1 worker",
    ]
    if plan.means is plans.StopSignal.TERM:
        said.append(f"SIGTERM, shutdown {format_duration(plan.shutdown)}, grace {format_duration(plan.grace)}")
    return ", ".join(said)


def _ends(rounds: Sequence[DrillRound]) -> str:
    """Counts the rounds in which the job did not simply run again, by how they ended."""
    odd = [one.end for one in rounds if one.end is not RoundOutcome.AGAIN]
    return ", ".join(f"{odd.count(end)} × {end.value}" for end in dict.fromkeys(odd))


def _heads(rounds: Sequence[DrillRound]) -> list[str]:
    """Returns the heads of the columns; the last one names how the job ended, one way or the other."""
    last = {one.stages[-1].stage for one in rounds if one.stages} or {DrillStage.AGAIN}
    return [*(stage.value for stage in _SHOWN[:-1]), " or ".join(stage.value for stage in DrillStage if stage in last)]


def _round(one: DrillRound) -> Cells:
    seen = {stage.stage: stage for stage in one.stages}
    cells = [
        seen.get(stage) or (seen.get(DrillStage.FAILED) if stage is DrillStage.AGAIN else None) for stage in _SHOWN
    ]
    return {
        "round": one,
        "tone": _TONES.get(one.end, ""),
        "cells": [((cell.stage if cell else stage).value, cell) for stage, cell in zip(_SHOWN, cells, strict=True)],
        "says": printable(one.says),
    }


def _compared(run: FireDrill) -> Iterator[Cells]:
    """Yields each stage of the prediction beside its measured times."""
    expected = predicted(run.plan)
    if not expected:
        return
    recovered = [one for one in run.rounds if one.end.is_recovery]
    for known in expected:
        yield {"known": known, **_middle(one.took(known.name) for one in recovered)}
    summary = run.summary
    yield {"known": total_stage(expected), "p50": summary.p50, "worst": summary.worst}


def _middle(values: Iterable[int | None]) -> Cells:
    found = sorted(value for value in values if value is not None)
    return {"p50": found[(len(found) - 1) // 2] if found else None, "worst": found[-1] if found else None}


def _bars(run: FireDrill) -> Iterator[Cells]:
    """Yields the prediction first, then the rounds that ended in a recovery, all to the scale of the longest."""
    expected = predicted(run.plan)
    measured = [one for one in run.rounds if one.end.is_recovery]
    rows = [(f"round {one.number}", [one.took(part) or 0 for part in PARTS]) for one in measured]
    if expected:
        rows.insert(0, ("predicted, typical", [one.typical for one in expected]))
        rows.insert(1, ("predicted, worst", [one.at_most for one in expected]))
    longest = max((sum(parts) for _, parts in rows), default=0)
    for name, parts in rows if longest else ():
        yield {"name": name, "total": sum(parts), "parts": _placed(parts, longest)}


def _placed(parts: Sequence[int], longest: int) -> list[Cells]:
    placed, at = [], 0
    for name, length in zip(PARTS, parts, strict=True):
        begin, end = round(at * WIDTH / longest), round((at + length) * WIDTH / longest)
        placed.append({"name": name, "x": begin, "width": end - begin, "length": length})
        at += length
    return placed
