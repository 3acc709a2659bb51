"""Workers that came or left between two snapshots."""

from __future__ import annotations

from dataclasses import replace

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot, Worker
from recovery.scanners.orphan_watch.worker_turnover import WorkerTurnover
from tests.support.stuck.samples import queue, snapshot

MAIL = QueueRef("main", "bull:mail")


def seen(*connections: str, known: bool = True, silent: str = "") -> Snapshot:
    found = snapshot(queue(), silent=silent)
    deployments = tuple(replace(one, workers_known=known) for one in found.deployments)
    workers = tuple(Worker(MAIL, "w", f"10.0.0.1:{one}", 9, 0, "bzpopmin", one) for one in connections)
    return replace(found, deployments=deployments, workers=workers)


def test_the_first_snapshot_tells_nothing() -> None:
    assert not WorkerTurnover().has_any(seen("1"))


def test_a_worker_that_left_or_came_is_noticed_once() -> None:
    turnover = WorkerTurnover()
    told = [turnover.has_any(seen(*one)) for one in (("1", "2"), ("1", "2"), ("1",), ("1",), ("1", "3"), ("1", "3"))]
    assert told == [False, False, True, False, True, False]


def test_a_deployment_that_does_not_answer_is_compared_later() -> None:
    turnover = WorkerTurnover()
    told = [turnover.has_any(one) for one in (seen("1"), seen(silent="main"), seen(known=False), seen("1"), seen())]
    assert told == [False, False, False, False, True]
