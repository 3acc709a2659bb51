"""Workers' comings and goings, from one look to the next."""

from __future__ import annotations

from dataclasses import replace

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Worker
from recovery.domain.servers.addresses import AddressMap
from recovery.domain.stuck.context import WorkerChange
from recovery.scanners.orphan_watch.worker_changes import (
    KEPT,
    KEPT_FOR,
    QueueWorkerChanges,
    WorkerChanges,
    merge_changes,
)

NOW = 1_795_000_000_000
MAIL = QueueRef("main", "bull:mail")
HOST = "10.0.0.1"


def worker(connection: int, name: str = "", queue: QueueRef = MAIL) -> Worker:
    return Worker(queue, name, f"{HOST}:{connection}", 1, 0, "bzpopmin", str(connection))


def change(name: str, connection: int, at: int = NOW + 5, host: str = HOST, cpu: float | None = None) -> WorkerChange:
    return WorkerChange(name, at, host, cpu, worker(connection).link, NOW - 1_000)


def test_the_first_look_says_nothing_of_anybody() -> None:
    assert WorkerChanges().since([worker(1)], NOW) == {}


def test_who_went_and_who_came_is_told_by_queue() -> None:
    arrivals = WorkerChanges()
    other = QueueRef("main", "bull:other")
    arrivals.since([worker(1, "a"), worker(2), worker(9, "x", other)], NOW)
    moves = arrivals.since([worker(1, "a"), worker(3, "b"), worker(9, "x", other)], NOW + 5)
    assert moves == {MAIL: QueueWorkerChanges(left=(change("", 2),), came=(replace(change("b", 3), since=NOW - 995),))}


def test_a_queue_whose_workers_all_went_is_told_too() -> None:
    arrivals = WorkerChanges()
    arrivals.since([worker(1, "a")], NOW)
    assert arrivals.since([], NOW + 5) == {MAIL: QueueWorkerChanges(left=(change("a", 1),))}


def test_a_named_worker_that_reconnected_has_not_gone() -> None:
    arrivals = WorkerChanges()
    arrivals.since([worker(1, "a")], NOW)
    assert arrivals.since([worker(2, "a")], NOW + 5)[MAIL].left == ()


def test_after_a_restart_nothing_is_compared() -> None:
    arrivals = WorkerChanges()
    arrivals.since([worker(1)], NOW)
    arrivals.forget()
    assert arrivals.since([worker(7)], NOW + 5) == {}


def test_what_is_kept_is_bounded_in_number_and_age() -> None:
    old, many = WorkerChange("a", NOW - KEPT_FOR - 1), tuple(WorkerChange(str(at), NOW) for at in range(KEPT + 9))
    kept = merge_changes((old,), many, NOW)
    assert len(kept) == KEPT
    assert old not in kept
    assert kept[-1] == many[-1]


def test_who_went_was_on_the_server_that_had_its_socket_then() -> None:
    """A process that has ended has no sockets any more, and its server may be silent."""
    arrivals = WorkerChanges()
    arrivals.since([worker(1, "a"), worker(2)], NOW)
    arrivals.since([worker(1, "a"), worker(2)], NOW + 5, AddressMap(sockets={f"{HOST}:1": "eu-2"}))
    moves = arrivals.since([], NOW + 9, AddressMap(loads={"eu-2": 97.0}))[MAIL]
    assert set(moves.left) == {change("a", 1, NOW + 9, "eu-2", 97.0), change("", 2, NOW + 9)}
