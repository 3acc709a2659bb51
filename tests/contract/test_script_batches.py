"""Scripts that are sent a few at a time: what is known of each job when the store fails in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from recovery.backends.base import Command, QueueOperator, Target
from recovery.backends.bull.operator import BullOperator
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import Unreachable
from tests.support.stores.pipe import Pipe
from tests.support.stores.stores import Store

NOW = 1_795_000_000_000
JOBS = 250
KINDS = {
    "bull4": (BullOperator(), LibraryVersion(QueueLibrary.BULL, 4), 50),
    "bullmq6": (BullMQOperator(), LibraryVersion(QueueLibrary.BULLMQ, 6, "6.7.0"), 100),
}  # with how many jobs may be on their way


class Losing:
    """A wire whose connection ends behind the n-th flight of scripts: the store has run them, and no answer comes."""

    def __init__(self, pipe: Pipe, at: int) -> None:
        self._pipe, self._left = pipe, at

    def call(self, commands: Sequence[Command]) -> list[Any]:
        replies = self._pipe.call(commands)
        self._left -= str(commands[0][0]).startswith("EVAL")
        if not self._left:
            raise Unreachable("redis://queues", "it closed the connection")
        return replies


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> tuple[QueueOperator, LibraryVersion, int]:
    return KINDS[request.param]


def _orphans(store: Store, count: int) -> list[ExpectedJob]:
    for id in range(count):
        store.client.hset(f"bull:q:{id}", mapping={"name": "job", "data": "{}", "timestamp": NOW, "processedOn": NOW})
        store.client.lpush("bull:q:active", id)
    return [ExpectedJob(str(id), JobState.ACTIVE, processed_at=NOW) for id in range(count)]


def _requeued(
    kind: tuple[QueueOperator, LibraryVersion, int], wire: Any, jobs: Sequence[ExpectedJob]
) -> Sequence[ScriptOutcome]:
    target = Target(wire, QueueRef("main", "bull:q"), kind[1])
    return kind[0].on_jobs(Action.REQUEUE, target, jobs, ActionOptions(is_late=True), NOW)


def test_a_lost_connection_leaves_only_those_unknown_that_were_on_their_way(
    store: Store, pipe: Pipe, kind: tuple[QueueOperator, LibraryVersion, int]
) -> None:
    jobs, most = _orphans(store, JOBS), kind[2]
    _requeued(kind, pipe, jobs[:1])  # by now the server knows the script
    done = _requeued(kind, Losing(pipe, 2), jobs[1:])
    rest = JOBS - 1 - 2 * most
    assert [one.outcome for one in done] == [
        *[Outcome.DONE] * most,
        *[Outcome.UNKNOWN] * most,
        *[Outcome.REFUSED] * rest,
    ]
    assert [one.is_untried for one in done] == [False] * 2 * most + [True] * rest
    assert {one.why for one in done[-rest:]} == {"Not tried: redis://queues: it closed the connection"}
    assert store.client.llen("bull:q:active") == rest
    assert store.client.llen("bull:q:wait") == 1 + 2 * most


def test_a_connection_that_is_lost_with_the_first_scripts_leaves_the_rest_untried(
    store: Store, pipe: Pipe, kind: tuple[QueueOperator, LibraryVersion, int]
) -> None:
    jobs, most = _orphans(store, JOBS), kind[2]
    _requeued(kind, pipe, jobs[:1])
    done = _requeued(kind, Losing(pipe, 1), jobs[1:])
    assert Counter(one.outcome for one in done) == {Outcome.UNKNOWN: most, Outcome.REFUSED: JOBS - 1 - most}
    assert store.client.llen("bull:q:active") == JOBS - 1 - most


def test_a_store_that_takes_no_writes_is_asked_no_more(store: Store, pipe: Pipe) -> None:
    """What each of the scripts sent first was refused for, the others would be refused for."""
    kind = KINDS["bullmq6"]
    jobs = _orphans(store, JOBS)
    _requeued(kind, pipe, jobs[:1])
    pipe.reset()
    store.do("REPLICAOF", "127.0.0.1", "1")
    try:
        done = _requeued(kind, pipe, jobs[1:])
    finally:
        store.do("REPLICAOF", "NO", "ONE")
    assert pipe.commands.count("EVALSHA") == 2
    assert [one.is_untried for one in done] == [False] * 100 + [True] * (JOBS - 101)
    assert store.client.llen("bull:q:active") == JOBS - 1
