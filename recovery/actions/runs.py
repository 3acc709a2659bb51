"""A bulk run's rows in the database, and the values they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterable

from recovery.actions.bulk_insert import insert_rows
from recovery.actions.gather import Selection
from recovery.domain.acting import Act, Actor, Options, Order, Seen
from recovery.domain.chain import canonical
from recovery.domain.jobs import State
from recovery.domain.refs import QueueRef, slug, unslug
from recovery.models import BulkItem, BulkRun

WAITING, GATHERING, RUNNING = "waiting", "gathering", "running"
STOPPED, ENDED, FAILED = "stopped", "ended", "failed"
OPEN = (WAITING, GATHERING, RUNNING)
ALL = "="  # a run's cursor when every job that its selection means has been found
NOTE = "bulk"  # the act of the notes that say who ordered a run, and how it ended
_ITEM = ("run_id", "place", "job", "seen", "outcome", "why", "audit")


def order_of(run: BulkRun) -> Order:
    """Returns the order of a run, without its jobs, which are the run's items."""
    queue = QueueRef(run.deployment, unslug(run.base))
    options = json.loads(run.options)
    options["state"] = State(options["state"]) if options["state"] else None
    return Order(Act(run.act), queue, Actor(**json.loads(run.actor)), run.reason, options=Options(**options))


def selection_of(run: BulkRun) -> Selection | None:
    found = json.loads(run.selection)
    return Selection.of_json(found) if found else None


def seen_of(item: BulkItem) -> Seen:
    facts = json.loads(item.seen)
    return Seen(**facts | {"state": State(facts["state"])})


def put(run: BulkRun, jobs: Iterable[Seen], first: int = 0, audit: int | None = None) -> None:
    """Writes items from this place on. `audit`: the number of the intent in which they are tried."""
    rows = [
        (run.pk, place, slug(seen.id), canonical(seen.as_json()), "", "", audit)
        for place, seen in enumerate(jobs, first)
    ]
    insert_rows(BulkItem, _ITEM, rows)
