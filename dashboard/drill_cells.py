"""Presents fire drills: lines of a table, rounds with their stages, bars to one scale."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from django.urls import reverse

from dashboard.rows import Cells
from recovery.domain.drills import plan as plans
from recovery.domain.drills.plan import Plan, arguments, doubts, in_all, predicted
from recovery.domain.drills.rounds import PARTS, End, Round, Stage, Status
from recovery.domain.refs import shown
from recovery.domain.spans import written
from recovery.reads.drills import Run

WIDTH = 1000  # units of a bar, whatever it measures
_WORDS = {
    Status.WAITING: "the scheduler starts it within seconds",
    Status.RUNNING: "it continues when you leave this page",
    Status.STOPPED: "stopped and cleaned up",
}
_TONES = {End.LEFT: "stuck", End.TWICE: "warn"}
_SHOWN = tuple(stage for stage in Stage if stage is not Stage.FAILED)


def line(run: Run) -> Cells:
    """Returns one drill as a line of the list."""
    expected = in_all(predicted(run.plan))
    return {
        "run": run,
        "url": reverse("drill", args=[run.id]),
        "library": f"{run.plan.library.label} {shown(run.version)}".strip(),
        "settings": settings(run.plan),
        "summary": run.summary,
        "expected": expected,
        "words": _WORDS.get(run.status, ""),
        "who": shown(run.actor.name),
        "tone": "" if all(one.end.is_harmless for one in run.rounds) else "warn",
        "ends": _ends(run.rounds),
        "steps": [(step.number, step.what, step.at) for step in run.under_way],
        "is_now": f"{len(run.rounds) + 1} of {run.plan.rounds}" if run.status is Status.RUNNING else "",
    }


def detail(run: Run) -> Cells:
    """Returns everything the page of one drill shows."""
    return line(run) | {
        "doubts": doubts(run.plan),
        "command": " ".join(("manage.py drill", *arguments(run.plan))),
        "stages": _heads(run.rounds),
        "rounds": [_round(one) for one in run.rounds],
        "compared": list(_compared(run)),
        "bars": list(_bars(run)),
        "parts": PARTS,
    }


def settings(plan: Plan) -> str:
    """Describes the tried worker settings in one line."""
    said = [
        f"lock {written(plan.lock)}",
        f"renew {written(plan.renew)}",
        f"stalled check {written(plan.stalled_interval)}",
        f"max stalled {plan.max_stalled}",
        f"{plan.workers} workers" if plan.workers != 1 else "1 worker",
    ]
    if plan.means is plans.Means.TERM:
        said.append(f"SIGTERM, shutdown {written(plan.shutdown)}, grace {written(plan.grace)}")
    return ", ".join(said)


def _ends(rounds: Sequence[Round]) -> str:
    """Counts the rounds in which the job did not simply run again, by how they ended."""
    odd = [one.end for one in rounds if one.end is not End.AGAIN]
    return ", ".join(f"{odd.count(end)} × {end.value}" for end in dict.fromkeys(odd))


def _heads(rounds: Sequence[Round]) -> list[str]:
    """Returns the heads of the columns; the last one names how the job ended, one way or the other."""
    last = {one.stages[-1].stage for one in rounds if one.stages} or {Stage.AGAIN}
    return [*(stage.value for stage in _SHOWN[:-1]), " or ".join(stage.value for stage in Stage if stage in last)]


def _round(one: Round) -> Cells:
    seen = {stage.stage: stage for stage in one.stages}
    cells = [seen.get(stage) or (seen.get(Stage.FAILED) if stage is Stage.AGAIN else None) for stage in _SHOWN]
    return {
        "round": one,
        "tone": _TONES.get(one.end, ""),
        "cells": [((cell.stage if cell else stage).value, cell) for stage, cell in zip(_SHOWN, cells, strict=True)],
        "says": shown(one.says),
    }


def _compared(run: Run) -> Iterator[Cells]:
    """Yields each stage of the prediction beside its measured times."""
    expected = predicted(run.plan)
    if not expected:
        return
    recovered = [one for one in run.rounds if one.end.is_recovery]
    for known in expected:
        yield {"known": known, **_middle(one.took(known.name) for one in recovered)}
    summary = run.summary
    yield {"known": in_all(expected), "p50": summary.p50, "worst": summary.worst}


def _middle(values: Iterable[int | None]) -> Cells:
    found = sorted(value for value in values if value is not None)
    return {"p50": found[(len(found) - 1) // 2] if found else None, "worst": found[-1] if found else None}


def _bars(run: Run) -> Iterator[Cells]:
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
