"""Measured stages of a fire drill, round by round, and the summary of all rounds.

Times are whole milliseconds. None is a stage that could not be seen, never one that took no time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Any

from recovery.domain import json_fields
from recovery.domain.tuning.prediction import CHECK, LOCK, PICK_UP


class DrillStatus(StrEnum):
    """Status of a drill that was started on the page."""

    WAITING = "waiting"  # the scheduler starts it within a few seconds
    RUNNING = "running"
    ENDED = "ended"
    FAILED = "failed"  # it could not be carried through
    STOPPED = "stopped"

    @property
    def is_open(self) -> bool:
        return self in OPEN


class DrillStage(StrEnum):
    """Stages of the recovery, in this order; the stalled check may mark the job before its lock ends."""

    ENDED = "worker ended"
    GONE = "connection gone"
    UNLOCKED = "lock ended"
    MARKED = "marked stalled"
    BACK = "back in wait"
    AGAIN = "picked up again"
    FAILED = "failed"  # in place of the one before, where the library fails what stalled too often

    @property
    def part(self) -> str:
        """Stage of the prediction that it belongs to."""
        return _PARTS[self]


class RoundOutcome(StrEnum):
    """Outcome of a round."""

    AGAIN = "picked up again"
    FAILED = "failed by the library"
    IN_TIME = "finished in time"
    TWICE = "taken over alive"
    LEFT = "not recovered"

    @property
    def is_recovery(self) -> bool:
        """Returns True if the length of the round is a time to recovery."""
        return self in (RoundOutcome.AGAIN, RoundOutcome.FAILED)

    @property
    def is_harmless(self) -> bool:
        return self.is_recovery or self is RoundOutcome.IN_TIME


@dataclass(frozen=True, slots=True)
class MeasuredStage:
    """A measured stage of a round: `at` since the signal, `took` since the stage before. None: it was not seen."""

    stage: DrillStage
    at: int | None
    took: int | None

    def as_json(self) -> dict[str, Any]:
        return {"stage": self.stage.value, "at": self.at, "took": self.took}


@dataclass(frozen=True, slots=True)
class DrillRound:
    """A round. `wait`: how long the job had run when its worker was ended. `says`: a remark, "" for none."""

    number: int
    end: RoundOutcome
    wait: int
    stages: tuple[MeasuredStage, ...]
    total: int | None
    is_complete: bool = False  # the job ran to its end in the second worker
    says: str = ""

    def as_json(self) -> dict[str, Any]:
        return {
            "round": self.number,
            "end": self.end.value,
            "wait": self.wait,
            "stages": [stage.as_json() for stage in self.stages],
            "total": self.total,
            "completed": self.is_complete,
            "says": self.says,
        }

    @classmethod
    def of_json(cls, told: Any) -> DrillRound:
        """Raises ValueError."""
        names = ("round", "end", "wait", "stages", "total", "completed", "says")
        number, end, wait, stages, total, completed, says = json_fields.fields(told, *names)
        return cls(
            json_fields.whole(number),
            RoundOutcome(end),
            json_fields.whole(wait),
            tuple(_stage(one) for one in stages),
            json_fields.whole_or_none(total),
            json_fields.flag(completed),
            json_fields.text(says),
        )

    def took(self, part: str) -> int | None:
        """Returns how long a stage of the prediction took; None if none of its parts was seen."""
        found = [one.took for one in self.stages if one.stage.part == part and one.took is not None]
        return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class DrillSummary:
    """Summary of the rounds that ended in a recovery. None: there was none."""

    p50: int | None
    worst: int | None
    recovered: int
    rounds: int


def measure_stages(
    moments: Mapping[DrillStage, float | None], signal_at: float, last: DrillStage
) -> tuple[MeasuredStage, ...]:
    """Returns the stages up to `last`, from moments of one clock in seconds. Each takes what it adds to those before
    it.

    So they sum up to the whole: a stalled mark from before the lock's end adds nothing.
    """
    found, reached = [], 0
    for stage in DrillStage:
        if stage in _ENDS and stage is not last:
            continue
        moment = moments.get(stage)
        at = None if moment is None else max(reached, round((moment - signal_at) * 1000))
        found.append(MeasuredStage(stage, at, None if at is None else at - reached))
        reached = reached if at is None else at
    return tuple(found)


def summarize(rounds: Sequence[DrillRound]) -> DrillSummary:
    totals = sorted(one.total for one in rounds if one.end.is_recovery and one.total is not None)
    middle = totals[ceil(len(totals) / 2) - 1] if totals else None
    return DrillSummary(middle, totals[-1] if totals else None, len(totals), len(rounds))


def _stage(told: Any) -> MeasuredStage:
    stage, at, took = json_fields.fields(told, "stage", "at", "took")
    return MeasuredStage(DrillStage(stage), json_fields.whole_or_none(at), json_fields.whole_or_none(took))


PARTS = (LOCK, CHECK, PICK_UP)
OPEN = frozenset({DrillStatus.WAITING, DrillStatus.RUNNING})
_PARTS = {
    DrillStage.ENDED: LOCK,
    DrillStage.GONE: LOCK,
    DrillStage.UNLOCKED: LOCK,
    DrillStage.MARKED: CHECK,
    DrillStage.BACK: CHECK,
    DrillStage.AGAIN: PICK_UP,
    DrillStage.FAILED: PICK_UP,
}
_ENDS = (DrillStage.AGAIN, DrillStage.FAILED)
