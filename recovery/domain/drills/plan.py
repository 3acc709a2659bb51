"""Settings of a fire drill, with their limits, warnings, and the recovery time that they predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from recovery.domain import json_fields
from recovery.domain.duration_parser import format_duration
from recovery.domain.queues import types as queues_types
from recovery.domain.time_units import HOUR, SECOND
from recovery.domain.tuning.prediction import LOCK, PredictedStage, predict
from recovery.domain.tuning.timing import WorkerTiming

PREFIX = "unstall-drill"  # key prefix of every drill's queue; none is ever taken for one of the user's
SLACK = 30 * SECOND  # added to the time after which a round is given up: processes start, idle workers poll
AT_MOST = 50  # rounds


class DrillLibrary(StrEnum):
    """Library of the workers that take part."""

    BULLMQ = "bullmq"
    BULL = "bull"
    PYTHON = "python"  # the official port of BullMQ

    @property
    def label(self) -> str:
        return {"bullmq": "BullMQ", "bull": "Bull", "python": "BullMQ for Python"}[self]


class StopSignal(StrEnum):
    """Signal that ends the worker which has the job."""

    KILL = "KILL"
    TERM = "TERM"  # and KILL when its grace is over


@dataclass(frozen=True, slots=True)
class DrillPlan:
    """Settings of one drill. `wait` None: each worker is ended at a random moment of its job, as in production."""

    library: DrillLibrary = DrillLibrary.BULLMQ
    lock: int = 30 * SECOND
    renew: int = 15 * SECOND
    stalled_interval: int = 30 * SECOND
    max_stalled: int = 1
    concurrency: int = 1
    workers: int = 2
    rounds: int = 1
    means: StopSignal = StopSignal.KILL
    grace: int = 30 * SECOND
    shutdown: int = 30 * SECOND  # for how long a worker that was asked to end waits for its job
    job: int = 120 * SECOND
    wait: int | None = None
    timeout: int | None = None  # of one round, from the signal on

    @property
    def patience(self) -> int:
        """Time after which a round is given up (ms): no healthy library takes longer."""
        if self.timeout is not None:
            return self.timeout
        recovery = predict(self.timing).recovery
        worst = round(recovery.worst * SECOND) if recovery else self.lock
        return self.end_within + worst + SLACK

    @property
    def timing(self) -> WorkerTiming:
        """Returns the timing of these workers, for the prediction."""
        return WorkerTiming(
            library=queues_types.QueueLibrary.BULL
            if self.library is DrillLibrary.BULL
            else queues_types.QueueLibrary.BULLMQ,
            lock=self.lock / SECOND,
            renew=self.renew / SECOND,
            stalled_interval=self.stalled_interval / SECOND,
            max_stalled=self.max_stalled,
            shutdown=self.shutdown / SECOND,
            grace=self.grace / SECOND,
        )

    @property
    def end_within(self) -> int:
        return self.grace if self.means is StopSignal.TERM else 0

    @property
    def spread(self) -> int:
        """Range of the moment of the signal within the job's life (ms): long enough for all phases of lock and stalled
        check to occur.
        """
        return min(max(self.renew, self.stalled_interval), self.job // 2)

    def as_json(self) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @classmethod
    def of_json(cls, told: Any) -> DrillPlan:
        """Reads a stored plan; fields that an older version did not have get their defaults. Raises ValueError."""
        json_fields.fields(told, "library", "means")
        values: dict[str, Any] = {field.name: told[field.name] for field in fields(cls) if field.name in told}
        library, means = DrillLibrary(values.pop("library")), StopSignal(values.pop("means"))
        for name, value in values.items():
            (json_fields.whole_or_none if name in _OPTIONAL else json_fields.whole)(value)
        return cls(library=library, means=means, **values)


_BOUNDS: Mapping[str, tuple[int, int]] = {
    "lock": (100, HOUR),
    "renew": (10, HOUR),
    "stalled_interval": (0, HOUR),
    "max_stalled": (0, 1000),
    "concurrency": (1, 100),
    "workers": (1, 16),
    "rounds": (1, AT_MOST),
    "grace": (0, HOUR),
    "shutdown": (0, HOUR),
    "job": (SECOND, HOUR),
    "wait": (0, HOUR),
    "timeout": (SECOND, 4 * HOUR),
}
_OPTIONAL = frozenset({"wait", "timeout"})
_TIMES = frozenset({"lock", "renew", "stalled_interval", "grace", "shutdown", "job", "wait", "timeout"})


def problems(plan: DrillPlan) -> dict[str, str]:
    """Returns the settings that cannot be tried at all, by the name of the field."""
    found = {}
    for name, (least, most) in _BOUNDS.items():
        value = getattr(plan, name)
        if value is not None and not least <= value <= most:
            found[name] = f"Write {_said(name, least)} to {_said(name, most)}."
    if plan.wait is not None and plan.wait >= plan.job and "wait" not in found:
        found["wait"] = "The job would finish before its worker is stopped: make the job longer."
    return found


def plan_warnings(plan: DrillPlan) -> tuple[str, ...]:
    """Returns warnings about settings that will not go well. The drill runs all the same, to show exactly that."""
    said = []
    if plan.renew >= plan.lock:
        said.append("The lock may expire before it is renewed: then the stalled check takes jobs from live workers.")
    elif plan.renew * 2 > plan.lock:
        said.append("The lock does not outlast one missed renewal.")
    if plan.stalled_interval == 0:
        said.append("Without a stalled interval no stalled check runs.")
    if plan.workers == 1:
        said.append("With one worker, no other worker can take over.")
    if plan.means is StopSignal.TERM and plan.grace <= plan.shutdown:
        said.append(
            "The grace period ends before the worker's own shutdown timeout: it is killed with SIGKILL during shutdown."
        )
    return tuple(said)


@dataclass(frozen=True, slots=True)
class ExpectedStage:
    """A stage of the prediction, from the signal on."""

    name: str
    at_least: int
    typical: int
    at_most: int


def predicted(plan: DrillPlan) -> tuple[ExpectedStage, ...]:
    """Returns the predicted stages; empty: never recovered. A worker with a long job that is asked to end exits when it
    gives up, or is killed.
    """
    recovery = predict(plan.timing).recovery if plan.workers > 1 else None
    if recovery is None:
        return ()
    before = min(plan.shutdown, plan.grace) if plan.means is StopSignal.TERM else 0
    return tuple(_expected(stage, before if stage.name == LOCK else 0) for stage in recovery.stages)


def total_stage(stages: Sequence[ExpectedStage]) -> ExpectedStage | None:
    """Sums up the stages; None if nothing is predicted."""
    if not stages:
        return None
    least, typical, most = (sum(getattr(one, name) for one in stages) for name in ("at_least", "typical", "at_most"))
    return ExpectedStage("in all", least, typical, most)


def arguments(plan: DrillPlan) -> tuple[str, ...]:
    """Returns the arguments of `manage.py drill` for this plan, without those that have their defaults."""
    given: list[str] = []
    for field in fields(plan):
        value = getattr(plan, field.name)
        if value != field.default and value is not None:
            option = "signal" if field.name == "means" else field.name.replace("_", "-")
            given += [f"--{option}", format_duration(value) if field.name in _TIMES else str(value)]
    return tuple(given)


def is_drill(base: str) -> bool:
    """Returns True if a queue of this base belongs to a drill."""
    return base.startswith(f"{PREFIX}:")


def _expected(stage: PredictedStage, before: int) -> ExpectedStage:
    least, typical, most = (round(value * SECOND) for value in (stage.at_least, stage.typical, stage.at_most))
    return ExpectedStage(stage.name, before + least, before + typical, before + most)


def _said(name: str, value: int) -> str:
    return f"{value / SECOND:g} s" if name in _TIMES else f"{value}"
