"""A bulk run's rows in the database, and the values they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterable

from recovery.actions.bulk.job_selection import BulkSelection
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Actor, ExpectedJob
from recovery.domain.audit.hash_chain import canonical
from recovery.domain.identifiers import QueueRef, slug, unslug
from recovery.domain.jobs import JobState
from recovery.models import BulkItem, BulkRun
from recovery.stores.sql.bulk_insert import insert_rows

WAITING, GATHERING, RUNNING = "waiting", "gathering", "running"
STOPPED, ENDED, FAILED = "stopped", "ended", "failed"
OPEN = (WAITING, GATHERING, RUNNING)
ALL = "="  # a run's cursor when every job that its selection means has been found
NOTE = "bulk"  # the act of the notes that say who ordered a run, and how it ended
_ITEM = ("run_id", "place", "job", "seen", "outcome", "why", "audit")


def order_of(run: BulkRun) -> ActionCommand:
    """Returns the order of a run, without its jobs, which are the run's items."""
    queue = QueueRef(run.deployment, unslug(run.base))
    options = json.loads(run.options)
    options["state"] = JobState(options["state"]) if options["state"] else None
    return ActionCommand(
        Action(run.act), queue, Actor(**json.loads(run.actor)), run.reason, options=ActionOptions(**options)
    )


def selection_of(run: BulkRun) -> BulkSelection | None:
    found = json.loads(run.selection)
    return BulkSelection.of_json(found) if found else None


def seen_of(item: BulkItem) -> ExpectedJob:
    facts = json.loads(item.seen)
    return ExpectedJob(**facts | {"state": JobState(facts["state"])})


def put(run: BulkRun, jobs: Iterable[ExpectedJob], first: int = 0, audit: int | None = None) -> None:
    """Writes items from this place on. `audit`: the number of the intent in which they are tried."""
    rows = [
        (run.pk, place, slug(seen.id), canonical(seen.as_json()), "", "", audit)
        for place, seen in enumerate(jobs, first)
    ]
    insert_rows(BulkItem, _ITEM, rows)
