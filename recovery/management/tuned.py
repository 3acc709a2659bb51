"""Formats a tuning report for the shell, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from recovery.domain.refs import shown
from recovery.domain.tuning.findings import Finding, plain, spoken
from recovery.domain.tuning.patches import Patch
from recovery.domain.tuning.prediction import Prediction
from recovery.domain.tuning.report import Outlook, Report
from recovery.domain.tuning.seen import Running, Seen
from recovery.domain.tuning.timing import Timing

_WIDTH = 8


def as_text(found: Report, running: Running | None) -> str:
    return "".join(f"{line}\n" for line in _lines(found, running))


def as_json(found: Report, running: Running | None) -> dict[str, Any]:
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


def _lines(found: Report, running: Running | None) -> Iterator[str]:
    for finding in found.findings:
        yield f"{finding.severity:<{_WIDTH}}{shown(finding.says)}"
        yield f"{'':<{_WIDTH}}{shown(finding.where)}"
        if finding.arithmetic:
            yield f"{'':<{_WIDTH}}{shown(finding.arithmetic)}"
        if finding.remedy:
            yield f"{'':<{_WIDTH}}→ {shown(finding.remedy)}"
    if not found.findings:
        yield "Nothing is wrong."
    for outlook in found.outlooks:
        yield from _foretold(outlook)
    for seen in running.queues if running else ():
        yield f"{shown(seen.queue.label)} ({seen.label}) shows {_shows(seen)}"
    yield from (shown(one) for one in (*found.remarks, *(running.trouble if running else ())))
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


def _foretold(outlook: Outlook) -> Iterator[str]:
    yield ""
    yield f"{shown(outlook.setup.where)}: {outlook.setup.application}"
    yield f"  now       {_times(outlook.now)}"
    if outlook.is_changed:
        yield f"  proposed  {_times(outlook.then)}"
    if outlook.is_out_of_reach:
        yield f"  in its code: {_in_code(outlook.better)}"


def _in_code(better: Timing) -> str:
    parts = (
        ("lockDuration", better.lock),
        ("lockRenewTime", better.renew),
        ("stalledInterval", better.stalled_interval),
    )
    return ", ".join(f"{name}: {plain(value * 1000)}" for name, value in parts)


def _times(said: Prediction) -> str:
    return f"{_recovery(said)}; {_shutdown(said)}"


def _recovery(said: Prediction) -> str:
    recovery = said.recovery
    if recovery is None:
        return "a lost job is never recovered"
    what = "back" if said.runs_again else "failed, not run again,"
    return (
        f"a lost job is {what} after about {spoken(recovery.about)}, typically {spoken(recovery.typical)}, "
        f"at worst {spoken(recovery.worst)}"
    )


def _shutdown(said: Prediction) -> str:
    if said.shutdown is None:
        return "the grace period is unknown"
    if said.shutdown.races:
        return "grace period ≤ shutdown timeout"
    return f"{spoken(said.shutdown.margin)} between shutdown timeout and SIGKILL"


def _shows(seen: Seen) -> str:
    lock = "no lock" if seen.lock is None else f"a lock of at least {spoken(seen.lock)}"
    return f"{lock}, {'no check' if seen.interval is None else f'a check every {spoken(seen.interval)} or more'}"


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "severity": one.severity.value,
        "where": one.where,
        "says": one.says,
        "arithmetic": one.arithmetic or None,
        "remedy": one.remedy or None,
    }


def _outlook(one: Outlook) -> dict[str, Any]:
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


def _seen(one: Seen) -> dict[str, Any]:
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
