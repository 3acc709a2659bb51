"""Workers and what dead ones left, seen by looks at real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recovery.monitor.process_table import SLICES, ProcessFindings, ProcessTable
from recovery.monitor.store_clock import StoreClock
from recovery.shared_clock import steady
from tests.support.processes.workers import Worker, working
from tests.support.stores.stores import Store
from tests.support.waiting import until

PATIENCE = 30.0  # seconds
TIMES = StoreClock(1_700_000_000_000, steady())
SHELL = ("sh", "-c", '"$@"; exit 0', "sh")  # it founds the group, waits, and goes with its child

Look = Callable[[], ProcessFindings]


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[Worker]:
    with working(tmp_path) as made:
        yield made


@pytest.fixture
def look(worker: Worker) -> Look:
    return _looks(worker)


def test_a_worker_is_told_with_what_it_uses_and_whom_it_is_connected_to(
    worker: Worker, look: Look, state_store: Store
) -> None:
    port = worker.call(state_store.port)
    (process,) = look().processes
    assert (process.pid, process.sockets) == (worker.pid, (f"127.0.0.1:{port}",))
    assert process.sockets[0] in {client["addr"] for client in state_store.client.client_list()}
    assert process.memory is not None
    assert process.memory > 1 << 20
    assert worker.pattern in process.command
    assert process.cpu is None  # it takes two looks
    worker.burn()
    until(lambda: (look().processes[0].cpu or 0) > 1, PATIENCE)


def test_children_that_outlive_their_worker_are_strays_with_what_they_have_open(worker: Worker, look: Look) -> None:
    child = worker.bear()
    before = until(lambda: _settled(look, child), PATIENCE)
    assert not before.strays  # while it lives they are its own
    worker.kill()
    found = look()
    assert not found.processes
    named = {stray.name: stray for stray in found.strays}
    assert named.keys() == {"timeout", "tail"}  # also the child's own child, which nobody adopted
    assert named["timeout"].pid == child
    assert named["tail"].files == (str(worker.file),)
    assert all(worker.pattern in stray.parent for stray in found.strays)
    since = found.strays[0].since
    assert [stray.since for stray in look().strays] == [since, since]
    recalled = ProcessTable((worker.pattern,), TIMES)  # as another monitor that was started in between
    recalled.recall([*found.strays, replace(found.strays[0], pid=os.getpid())])
    again = recalled.look(steady())
    assert {(one.pid, one.parent) for one in again.strays} == {(one.pid, one.parent) for one in found.strays}
    assert abs(again.strays[0].since - since) < 100
    os.kill(child, signal.SIGTERM)
    until(lambda: not look().strays, PATIENCE)


@pytest.mark.parametrize("starter", [(), SHELL], ids=["founder", "started by a shell"])
def test_a_child_that_no_look_saw_beside_its_worker_is_its_all_the_same(
    tmp_path: Path, starter: tuple[str, ...]
) -> None:
    with working(tmp_path, starter=starter) as worker:
        look = _looks(worker)
        until(lambda: look().processes, PATIENCE)
        child = worker.bear()
        worker.kill()
        assert child in {stray.pid for stray in look().strays}


def test_a_child_whose_parent_went_first_belongs_to_the_worker_all_the_same(worker: Worker, look: Look) -> None:
    child = worker.leave()
    for _ in range(3):
        assert not look().strays
    worker.kill()
    assert child in {stray.pid for stray in look().strays}


def test_a_worker_that_was_let_go_on_purpose_is_no_stray(worker: Worker, look: Look) -> None:
    child = worker.detach()
    until(lambda: child in {process.pid for process in look().processes}, PATIENCE)
    worker.kill()
    for _ in range(SLICES):
        found = look()
        assert [process.pid for process in found.processes] == [child]
        assert not found.strays


def test_more_workers_than_are_listed_are_counted(worker: Worker, look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.monitor.process_table.PROCESSES", 1)
    child = worker.detach()
    found = until(lambda: look() if look().left_out else None, PATIENCE)
    assert found.left_out == 1
    assert found.processes[0].pid in (worker.pid, child)


def _looks(worker: Worker) -> Look:
    crowd = ProcessTable((worker.pattern,), TIMES)
    return lambda: crowd.look(steady())


def _settled(look: Look, child: int) -> ProcessFindings | None:
    """A look after the child has started its own, so that both are known."""
    found = look()
    children = Path(f"/proc/{child}/task/{child}/children").read_text().split()
    return found if children and Path(f"/proc/{children[0]}/comm").read_text() == "tail\n" and look() else None
