"""Runs a drill from start to end; whatever happens, its workers are ended and its keys are deleted."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from recovery.config import Deployment
from recovery.domain.drills.plan import PREFIX, DrillPlan
from recovery.domain.drills.results import DrillRound, DrillSummary, RoundOutcome, summarize
from recovery.domain.identifiers import QueueRef
from recovery.drills import location
from recovery.drills.cleanup_process import CleanupProcess
from recovery.drills.observer import DrillObserver
from recovery.drills.round_runner import Rest, RoundRunner
from recovery.drills.runtimes import WorkerRuntime
from recovery.drills.workers import DrillWorkers
from recovery.stores.registry import open_wire

_UNFINISHED = "The remaining rounds were skipped: no worker takes this job over."


@dataclass(frozen=True, slots=True)
class DrillEvent:
    """An event of a round, for the progress display. `round` is set once the round is over."""

    number: int
    what: str
    at: int
    round: DrillRound | None = None


@dataclass(slots=True)
class DrillReport:
    """Results of a drill so far. `cleaned`: number of deleted keys, None while it is not known."""

    plan: DrillPlan
    base: str
    target: str
    version: str
    rounds: list[DrillRound] = field(default_factory=list)
    cleaned: int | None = None
    left: str = ""  # why keys may be left
    says: str = ""

    @property
    def summary(self) -> DrillSummary:
        return summarize(self.rounds)


def run(
    plan: DrillPlan,
    program: WorkerRuntime,
    deployment: Deployment,
    on: str,
    *,
    rest: Rest,
    tell: Callable[[DrillEvent], None],
) -> DrillReport:
    """Runs a drill. Raises NotStarted, StoreError, and whatever `rest` raises: all of it after it has cleaned up.

    To be called from the main thread. `on` is the deployment by its configured name, "" the state store.
    """
    name = secrets.token_hex(5)
    drill = DrillReport(plan, f"{PREFIX}:{name}", deployment.target, program.version)
    wire = open_wire(deployment)
    with ExitStack() as ending:
        ending.callback(wire.close)
        wire.call([(b"PING",)])  # before anything is started
        connection = location.connection_options(deployment, wire)
        ending.callback(_clean, drill, CleanupProcess.start(drill.base, on))
        crew = DrillWorkers(plan, program, connection, name)
        ending.callback(crew.close)
        watcher = DrillObserver(wire, QueueRef("", drill.base), program.library, program.version)
        _rounds(drill, crew, watcher, rest=rest, tell=tell)
    return drill


def _rounds(
    drill: DrillReport, crew: DrillWorkers, watcher: DrillObserver, *, rest: Rest, tell: Callable[[DrillEvent], None]
) -> None:
    for number in range(1, drill.plan.rounds + 1):

        def note(what: str, at: int, number: int = number) -> None:
            tell(DrillEvent(number, what, at))

        course = RoundRunner(drill.plan, crew, watcher, rest=rest, note=note)
        drill.rounds.append(course.run(number))
        tell(DrillEvent(number, "over", drill.rounds[-1].total or 0, drill.rounds[-1]))
        if drill.rounds[-1].end is RoundOutcome.LEFT and number < drill.plan.rounds:
            drill.says = _UNFINISHED
            return


def _clean(drill: DrillReport, cleaner: CleanupProcess) -> None:
    drill.cleaned, drill.left = cleaner.finish()


def as_json(drill: DrillReport) -> dict[str, Any]:
    summary = drill.summary
    return {
        "plan": drill.plan.as_json(),
        "base": drill.base,
        "on": drill.target,
        "version": drill.version,
        "rounds": [one.as_json() for one in drill.rounds],
        "p50": summary.p50,
        "worst": summary.worst,
        "recovered": summary.recovered,
        "cleaned": drill.cleaned,
        "left": drill.left,
        "says": drill.says,
    }
