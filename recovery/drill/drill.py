"""Runs a drill from start to end; whatever happens, its workers are ended and its keys are deleted."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from recovery.config import Deployment
from recovery.connections.registry import open_wire
from recovery.domain.drills.plan import PREFIX, Plan
from recovery.domain.drills.rounds import End, Round, Summary, summed
from recovery.domain.refs import QueueRef
from recovery.drill import link
from recovery.drill.cleaner import Cleaner
from recovery.drill.course import Course, Rest
from recovery.drill.crew import Crew
from recovery.drill.programs import Program
from recovery.drill.sight import Watcher

_UNFINISHED = "The remaining rounds were skipped: no worker takes this job over."


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a round, for the progress display. `round` is set once the round is over."""

    number: int
    what: str
    at: int
    round: Round | None = None


@dataclass(slots=True)
class Drill:
    """Results of a drill so far. `cleaned`: number of deleted keys, None while it is not known."""

    plan: Plan
    base: str
    target: str
    version: str
    rounds: list[Round] = field(default_factory=list)
    cleaned: int | None = None
    left: str = ""  # why keys may be left
    says: str = ""

    @property
    def summary(self) -> Summary:
        return summed(self.rounds)


def run(
    plan: Plan, program: Program, deployment: Deployment, on: str, *, rest: Rest, tell: Callable[[Event], None]
) -> Drill:
    """Runs a drill. Raises NotStarted, StoreError, and whatever `rest` raises: all of it after it has cleaned up.

    To be called from the main thread. `on` is the deployment by its configured name, "" the state store.
    """
    name = secrets.token_hex(5)
    drill = Drill(plan, f"{PREFIX}:{name}", deployment.target, program.version)
    wire = open_wire(deployment)
    with ExitStack() as ending:
        ending.callback(wire.close)
        wire.call([(b"PING",)])  # before anything is started
        connection = link.options(deployment, wire)
        ending.callback(_clean, drill, Cleaner.start(drill.base, on))
        crew = Crew(plan, program, connection, name)
        ending.callback(crew.close)
        watcher = Watcher(wire, QueueRef("", drill.base), program.library, program.version)
        _rounds(drill, crew, watcher, rest=rest, tell=tell)
    return drill


def _rounds(drill: Drill, crew: Crew, watcher: Watcher, *, rest: Rest, tell: Callable[[Event], None]) -> None:
    for number in range(1, drill.plan.rounds + 1):

        def note(what: str, at: int, number: int = number) -> None:
            tell(Event(number, what, at))

        course = Course(drill.plan, crew, watcher, rest=rest, note=note)
        drill.rounds.append(course.run(number))
        tell(Event(number, "over", drill.rounds[-1].total or 0, drill.rounds[-1]))
        if drill.rounds[-1].end is End.LEFT and number < drill.plan.rounds:
            drill.says = _UNFINISHED
            return


def _clean(drill: Drill, cleaner: Cleaner) -> None:
    drill.cleaned, drill.left = cleaner.finish()


def as_json(drill: Drill) -> dict[str, Any]:
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
