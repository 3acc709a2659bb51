"""Two schedulers that both believe they lead, at one queue at the same time: no epoch gets in behind a later one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count, pairwise

import pytest

from recovery.backends.base import CommandClient
from recovery.backends.registry import operator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from tests.support.stores.fences import FLAVOURS, NOW, Queue
from tests.support.stores.stores import Store
from tests.support.stores.wires import wired

STEPS = 25  # acts of one that leads, before the other takes over behind its back
SHORT, LONG = 300, 10_000  # fail-overs, over all generations


@dataclass(slots=True)
class Term:
    """The lease, as a database keeps it: whoever takes it has a later epoch than anybody before."""

    wanted: int
    epoch: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> int:
        with self._lock:
            self.epoch += 1
            return self.epoch

    @property
    def is_over(self) -> bool:
        return self.epoch >= self.wanted


@dataclass(slots=True)
class Tally:
    """What one of them was told: under which epoch each of its jobs went, and which were refused."""

    done: dict[str, int] = field(default_factory=dict)
    refused: dict[str, tuple[int, int]] = field(default_factory=dict)  # job → its epoch, and the one that was met


@pytest.fixture(params=FLAVOURS)
def queue(request: pytest.FixtureRequest, valkey: Store) -> Queue:
    return Queue(valkey.client, request.param)


def test_no_stale_act_is_let_in(queue: Queue, valkey: Store) -> None:
    _fail_over(queue, valkey, SHORT // len(FLAVOURS))


@pytest.mark.long
def test_no_stale_act_is_let_in_in_ten_thousand_fail_overs(queue: Queue, valkey: Store) -> None:
    _fail_over(queue, valkey, -(-LONG // len(FLAVOURS)))


def _fail_over(queue: Queue, store: Store, times: int) -> None:
    term, numbers = Term(times), count()
    with wired(store.url) as one, wired(store.url) as other, ThreadPoolExecutor(2) as pool:
        tallies = list(pool.map(lambda wire: _act(queue, wire, term, numbers), (one, other)))
    done = {id: epoch for tally in tallies for id, epoch in tally.done.items()}
    refused = {id: epochs for tally in tallies for id, epochs in tally.refused.items()}
    order = [id.decode() for id in store.client.lrange(f"{queue.base}:wait", 0, -1)][::-1]
    order = [id for id in order if not id.startswith("0:")]
    assert set(order) == set(done)  # what was refused has not moved, and what was done has
    assert len(order) == len(done)
    assert all(former <= latter for former, latter in pairwise(done[id] for id in order))
    assert {id.decode() for id in store.client.zrange(f"{queue.base}:failed", 0, -1)} == set(refused)
    assert all(mine < met for mine, met in refused.values())
    assert len(refused) >= times // 4, "hardly anybody was overtaken: nothing was shown"


def _act(queue: Queue, wire: CommandClient, term: Term, numbers: Iterator[int]) -> Tally:
    """Acts until it is refused, and takes the lease back; now and then it takes it again without need."""
    tally, mine = Tally(), term.take()
    ours, seeding = operator(queue.flavour), Queue(queue.client, "bull4", queue.base)
    while not term.is_over:
        for _ in range(STEPS):
            id = str(next(numbers))
            seeding.failed(id)
            (done,) = ours.on_jobs(
                Action.RETRY, queue.target(wire, mine), [ExpectedJob(id, JobState.FAILED)], ActionOptions(), NOW
            )
            if done.fenced is None:
                assert done.outcome is Outcome.DONE, done
                tally.done[id] = mine
                continue
            tally.refused[id] = (mine, done.fenced)
            break
        mine = term.take()
    return tally
