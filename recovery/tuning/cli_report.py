"""Formats a tuning report for the shell, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from recovery.domain.identifiers import printable
from recovery.domain.tuning.findings import TuningFinding, number_text, seconds_text
from recovery.domain.tuning.observed import ObservedQueue, ObservedSettings
from recovery.domain.tuning.patches import Patch
from recovery.domain.tuning.prediction import Prediction
from recovery.domain.tuning.report import TuningReport, WorkerAssessment
from recovery.domain.tuning.timing import WorkerTiming

_WIDTH = 8


def as_text(found: TuningReport, running: ObservedSettings | None) -> str:
    return "".join(f"{line}\n" for line in _lines(found, running))


def as_json(found: TuningReport, running: ObservedSettings | None) -> dict[str, Any]:
    """Returns the report as JSON: times in seconds, null for unknown."""
    return {
        "findings": [_finding(one) for one in found.findings],
        "workers": [_outlook(one) for one in found.outlooks],
        "patches": [
            {"file": one.file, "diff": one.diff, "withheld": one.withheld, "has_context": one.has_context}
            for one in found.patches
        ],
        "remarks": list(found.remarks),
        "running": [_seen(one) for one in running.queues] if running else None,
        "trouble": list(running.trouble) if running else [],
    }


def _lines(found: TuningReport, running: ObservedSettings | None) -> Iterator[str]:
    for finding in found.findings:
        yield f"{finding.severity:<{_WIDTH}}{printable(finding.says)}"
        yield f"{'':<{_WIDTH}}{printable(finding.where)}"
        if finding.arithmetic:
            yield f"{'':<{_WIDTH}}{printable(finding.arithmetic)}"
        if finding.remedy:
            yield f"{'':<{_WIDTH}}→ {printable(finding.remedy)}"
    if not found.findings:
        yield "Nothing is wrong."
    for outlook in found.outlooks:
        yield from _foretold(outlook)
    for seen in running.queues if running else ():
        yield f"{printable(seen.queue.label)} ({seen.label}) shows {_shows(seen)}"
    yield from (printable(one) for one in (*found.remarks, *(running.trouble if running else ())))
    for patch in found.patches:
        yield from _patch(patch)


def _patch(patch: Patch) -> Iterator[str]:
    if patch.diff:
        yield ""
        yield patch.diff.rstrip("\n")
    if patch.diff and not patch.has_context:
        yield f"For {patch.file}, `git apply` needs --unidiff-zero: no line of context can be shown."
    if patch.withheld:
        yield f"{patch.withheld} more in {patch.file}, on lines with other content, which are not shown."


def _foretold(outlook: WorkerAssessment) -> Iterator[str]:
    yield ""
    yield f"{printable(outlook.setup.where)}: {outlook.setup.application}"
    yield f"  now       {_times(outlook.now)}"
    if outlook.is_changed:
        yield f"  proposed  {_times(outlook.then)}"
    if outlook.is_out_of_reach:
        yield f"  in its code: {_in_code(outlook.better)}"


def _in_code(better: WorkerTiming) -> str:
    parts = (
        ("lockDuration", better.lock),
        ("lockRenewTime", better.renew),
        ("stalledInterval", better.stalled_interval),
    )
    return ", ".join(f"{name}: {number_text(value * 1000)}" for name, value in parts)


def _times(said: Prediction) -> str:
    return f"{_recovery(said)}; {_shutdown(said)}"


def _recovery(said: Prediction) -> str:
    recovery = said.recovery
    if recovery is None:
        return "a lost job is never recovered"
    what = "back" if said.runs_again else "failed, not run again,"
    return (
        f"a lost job is {what} after about {seconds_text(recovery.about)}, typically {seconds_text(recovery.typical)}, "
        f"at worst {seconds_text(recovery.worst)}"
    )


def _shutdown(said: Prediction) -> str:
    if said.shutdown is None:
        return "the grace period is unknown"
    if said.shutdown.races:
        return "grace period ≤ shutdown timeout"
    return f"{seconds_text(said.shutdown.margin)} between shutdown timeout and SIGKILL"


def _shows(seen: ObservedQueue) -> str:
    lock = "no lock" if seen.lock is None else f"a lock of at least {seconds_text(seen.lock)}"
    return f"{lock}, {'no check' if seen.interval is None else f'a check every {seconds_text(seen.interval)} or more'}"


def _finding(one: TuningFinding) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "severity": one.severity.value,
        "where": one.where,
        "says": one.says,
        "arithmetic": one.arithmetic or None,
        "remedy": one.remedy or None,
    }


def _outlook(one: WorkerAssessment) -> dict[str, Any]:
    return {
        "name": one.setup.name,
        "where": one.setup.where,
        "application": one.setup.application,
        "now": {"timing": asdict(one.setup.timing), **_prediction(one.now)},
        "proposed": {"timing": asdict(one.better), **_prediction(one.then)},
    }


def _prediction(said: Prediction) -> dict[str, Any]:
    recovery, shutdown = said.recovery, said.shutdown
    return {
        "recovery": recovery
        and {
            "about": recovery.about,
            "typical": recovery.typical,
            "at_least": recovery.at_least,
            "worst": recovery.worst,
            "stages": [asdict(stage) for stage in recovery.stages],
        },
        "shutdown": shutdown and {**asdict(shutdown), "margin": shutdown.margin, "races": shutdown.races},
        "runs_again": said.runs_again,
    }


def _seen(one: ObservedQueue) -> dict[str, Any]:
    return {
        "deployment": one.queue.deployment,
        "base": one.queue.base,
        "library": one.library.value,
        "lock": one.lock,
        "renewed": one.renewed,
        "interval": one.interval,
        "workers": one.workers,
        "is_unwatched": one.is_unwatched,
    }
