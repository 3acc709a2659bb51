"""Defines recovery hooks: what an application is told when a job was lost or recovered, and how its own row follows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState

ID_LIMIT = 500  # characters of a row's id


class HookEvent(StrEnum):
    LOST = "lost"  # a job is proven to have no holder
    RECOVERED = "recovered"  # it was requeued, or ended, by its library or by an action


@dataclass(frozen=True, slots=True)
class StageChoice:
    """Stage for a row whose column matches. `equals` None: it only has to be set, or (`is_set` False) not to be."""

    column: str
    to: str
    is_set: bool = True
    equals: str | None = None


@dataclass(frozen=True, slots=True)
class HookRowUpdate:
    """UPDATE of the application's row that follows its job: of rows in an active stage, and of no others."""

    database: str
    table: str
    id: str  # its column
    path: tuple[str, ...]  # where the job's data has the row's id; (): the job's own id is it
    stage: str  # its column
    active: tuple[str, ...]
    to: str
    failed: str = ""  # the stage of a row whose job has failed for good; "": it is left alone
    choices: tuple[StageChoice, ...] = ()  # the first that fits wins over `to`


@dataclass(frozen=True, slots=True)
class Hook:
    """A recovery hook: it calls a function, `module:name`, or updates a row. `deployment` "" is any."""

    name: str
    deployment: str
    base: str
    on: frozenset[HookEvent]
    call: str = ""
    follow: HookRowUpdate | None = None

    def hears(self, event: HookEvent, queue: QueueRef) -> bool:
        return event in self.on and self.base == queue.base and self.deployment in ("", queue.deployment)


@dataclass(frozen=True, slots=True)
class HookPayload:
    """Argument of a call to the application's function. `state` "" and `data` None: the job is gone, or has none."""

    event: str
    deployment: str
    queue: str
    job: str
    at: int
    act: str = ""  # the action on it; "": its library did it
    state: str = ""
    name: str = ""
    data: Any = None


def stage_for(follow: HookRowUpdate, row: JobRow | None, act: str) -> str:
    """Returns the stage for the row of this job, where no choice says otherwise; "" when the row is to be left alone.

    A job that runs again, or has come to its end, has a worker that knows better.
    """
    if row is None or row.missing:
        return follow.failed if act == Action.FAIL else ""
    if row.state is JobState.FAILED:
        return follow.failed
    if row.state in (JobState.COMPLETED, JobState.UNKNOWN):
        return ""
    if row.state is JobState.ACTIVE and (row.lock is not None or not row.lock_known):
        return ""
    return follow.to


def row_id(follow: HookRowUpdate, job: str, data: bytes | None) -> str | int | None:
    """Returns the id of the application's row; None when the job's data has none."""
    if not follow.path:
        return job
    found = parse_job_data(data)
    for step in follow.path:
        found = _member(found, step)
    if isinstance(found, bool) or not isinstance(found, str | int):
        return None
    return found if found != "" and len(str(found)) <= ID_LIMIT else None


def parse_job_data(data: bytes | None) -> Any:
    """Parses the job's data as JSON; returns None for what is no JSON."""
    try:
        return json.loads(data.decode("utf-8", "replace")) if data else None
    except (ValueError, RecursionError):
        return None


def _member(found: Any, step: str) -> Any:
    if isinstance(found, Mapping):
        return found.get(step)
    if isinstance(found, list) and step.isascii() and step.isdigit() and len(step) < 7:
        return found[int(step)] if int(step) < len(found) else None
    return None
