"""What the deep look does beside jobs: markers, incidents that were left open, hooks that failed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import OperationalError

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, Snapshot
from recovery.domain.time_units import MINUTE
from recovery.models import Incident
from recovery.scanners.stale_check import scanner
from tests.support.stuck.stale import Deep, done

pytestmark = pytest.mark.django_db


# -- markers


def _idle(deep: Deep, **facts: Any) -> Snapshot:
    deep.waiting("1", "2")
    deep.client.hset("bull:mail:1", "timestamp", deep.now - 20 * MINUTE)
    deep.connected("w1")
    taken = deep.taken()
    facts = {"oldest_waiting_at": deep.now - 20 * MINUTE, **facts}
    return replace(taken, queues=tuple(sample._replace(**facts) for sample in taken.queues))


def test_a_missing_marker_is_said_and_not_touched(deep: Deep) -> None:
    deep.snapshot = _idle(deep)
    before = deep.dump()
    report = deep.check.run(deep.now)
    (find,) = report.finds
    assert find.what == "2 jobs wait, the oldest for 20 min; 1 worker is idle, and the wake-up marker is missing."
    assert (find.policy, deep.dump()) == (scanner.NOT_TOUCHED, before)


@pytest.mark.parametrize(
    "facts",
    [
        {"is_paused": True},
        {"oldest_waiting_at": None},
        {"concurrency": 0},
        {"flavour": LibraryVersion(QueueLibrary.BULLMQ, 4)},
    ],
)
def test_a_queue_that_has_a_reason_to_wait_is_not_said_to_lack_its_marker(deep: Deep, facts: dict[str, Any]) -> None:
    deep.snapshot = _idle(deep, **facts)
    assert deep.check.run(deep.now).finds == ()


def test_a_queue_at_its_rate_limit_lacks_nothing(deep: Deep) -> None:
    deep.snapshot = _idle(deep)
    deep.client.set("bull:mail:limiter", 7)
    assert deep.check.run(deep.now).finds == ()


def test_a_queue_with_its_marker_lacks_nothing(deep: Deep) -> None:
    deep.snapshot = _idle(deep)
    deep.client.zadd("bull:mail:marker", {"0": 0})
    assert deep.check.run(deep.now).finds == ()


def test_busy_workers_need_no_marker(deep: Deep) -> None:
    deep.snapshot = replace(_idle(deep), workers=())
    assert deep.check.run(deep.now).finds == ()


# -- incidents that were left open


def _incident(deep: Deep, job: str, *, deployment: str = "main", base: str = "bull:mail", ago: int = 20) -> Incident:
    at = deep.now - ago * MINUTE
    slug = QueueRef(deployment, base).slug
    return Incident.objects.create(deployment=deployment, base=slug, job=job, kind="orphan", opened_at=at, proven_at=at)


def test_incidents_of_what_is_no_more_are_closed(deep: Deep) -> None:
    gone = _incident(deep, "1", deployment="old")
    queue = _incident(deep, "2", base="bull:other")
    removed = _incident(deep, "3")
    deep.waiting("4")
    moved = _incident(deep, "4")
    assert len(deep.run().finds) == 2
    for row in (removed, moved):
        row.refresh_from_db()
        assert row.closed_at is None, "the watch may be about to close it"
    assert len(deep.run(later=15).finds) == 2
    for row in (gone, queue, removed, moved):
        row.refresh_from_db()
    assert gone.closed_at == queue.closed_at == deep.now
    assert removed.closed_at == moved.closed_at == deep.now + 15 * MINUTE
    assert (gone.resolved_by, queue.resolved_by, removed.resolved_by) == ("", "removed", "removed")


def test_an_incident_that_goes_on_stays_open(deep: Deep) -> None:
    deep.orphan("1")
    row = _incident(deep, "1", ago=20)
    deep.snapshot = deep.taken()
    deep.paused = ("held",)
    deep.check.run(deep.now)
    row.refresh_from_db()
    assert row.closed_at is None


def test_a_young_incident_is_left_to_the_watch(deep: Deep) -> None:
    row = _incident(deep, "1", ago=5)
    deep.run()
    row.refresh_from_db()
    assert row.closed_at is None


def test_a_store_that_is_away_closes_nothing(deep: Deep) -> None:
    row = _incident(deep, "1")
    deep.snapshot = deep.taken()
    deep.queues.pause()
    deep.check.run(deep.now)
    deep.queues.resume()
    row.refresh_from_db()
    assert row.closed_at is None


# -- hooks


def test_hooks_that_failed_are_called_again(deep: Deep) -> None:
    deep.run()
    assert deep.called == [deep.now]


def test_hooks_that_cannot_be_called_cost_nothing_else(deep: Deep) -> None:
    def away(_: int) -> None:
        raise OperationalError("locked")

    deep.orphan("1")
    deep.watched(16)
    deep.check = deep.begin(away)
    report = deep.run()
    assert (done(report), len(report.faults)) == ([("1", Action.REQUEUE)], 1)
