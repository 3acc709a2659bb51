"""Jobs of a Bull queue as a worker leaves them, made by hand from ones the library added: quicker than to run it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from recovery.domain.actions.types import Action, ExpectedJob, Outcome, ScriptOutcome
from tests.contract.desk import Desk, desk_of, now
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store

N8N = {"workflowId": "7", "executionId": "41", "loadStaticData": False}
HOUR = 3_600_000


@pytest.fixture(params=["bull3", "bull4"])
def desk(request: pytest.FixtureRequest, store_for: Callable[[str], Store], libraries: Fleet) -> Iterator[Desk]:
    """Both generations, each on a store of its own kind."""
    with desk_of(request.param, libraries, store_for(request.param)) as desk:
        yield desk


def taken(desk: Desk, count: int = 1) -> list[str]:
    """Their worker died, and their locks ran out."""
    jobs = desk.queue.add_many(count, "orphan")
    for job in jobs:
        desk.store.client.rpoplpush(desk.queue.key("wait"), desk.queue.key("active"))
        desk.store.client.hset(desk.queue.key(job), "processedOn", now())
    return jobs


def held(desk: Desk) -> str:
    """A worker holds it that will never be heard of again."""
    (job,) = taken(desk)
    desk.store.client.set(desk.queue.key(job, "lock"), "of-a-dead-process", px=60_000)
    return job


def failed(desk: Desk, **options: Any) -> str:
    job = desk.queue.add("failing", **options)
    desk.store.client.lrem(desk.queue.key("wait"), 0, job)
    desk.store.client.zrem(desk.queue.key("priority"), job)
    fields = {"processedOn": 1, "finishedOn": now(), "failedReason": "it failed"}
    desk.store.client.hset(desk.queue.key(job), mapping=fields)
    desk.store.client.zadd(desk.queue.key("failed"), {job: now()})
    return job


def unchanged(desk: Desk, act: Action, *jobs: ExpectedJob, **options: Any) -> tuple[ScriptOutcome, ...]:
    """All of them are refused, and no key is another."""
    before = desk.all_keys()
    done = desk.act(act, *jobs, **options)
    assert desk.all_keys() == before
    assert {one.outcome for one in done} == {Outcome.REFUSED}
    return done
