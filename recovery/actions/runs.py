"""A bulk run's rows in the database, and the values they stand for."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from itertools import islice

from recovery.actions.gather import Selection
from recovery.domain.acting import Act, Actor, Options, Order, Seen
from recovery.domain.chain import canonical
from recovery.domain.jobs import State
from recovery.domain.refs import QueueRef, slug, unslug
from recovery.models import BulkItem, BulkRun

WAITING, GATHERING, RUNNING = "waiting", "gathering", "running"
STOPPED, ENDED, FAILED = "stopped", "ended", "failed"
OPEN = (WAITING, GATHERING, RUNNING)
NOTE = "bulk"  # the act of the notes that say who ordered a run, and how it ended
_BATCH = 500


def order_of(run: BulkRun) -> Order:
    """Without its jobs, which are the run's items."""
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


def add(run: BulkRun, jobs: Sequence[Seen]) -> None:
    """Gathered ones, behind those that are there."""
    put(run, enumerate(jobs, start=run.total))
    run.total += len(jobs)


def put(run: BulkRun, jobs: Iterable[tuple[int, Seen]]) -> None:
    items = (BulkItem(run=run, place=place, job=slug(seen.id), seen=canonical(asdict(seen))) for place, seen in jobs)
    while batch := list(islice(items, _BATCH)):
        BulkItem.objects.bulk_create(batch)
