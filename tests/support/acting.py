"""A queue of BullMQ written by hand, in the states that acts are for, and a process that is configured to act on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from recovery.actions import runner
from recovery.actions.bulk import bulk_runs
from recovery.actions.bulk.bulk_runs import BulkRunner, BulkSelection
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Actor
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, Snapshot
from recovery.models import BulkRun
from recovery.reads.bulk import queries as progress_of
from recovery.reads.bulk.queries import BulkProgress
from recovery.reads.queues import snapshot_store
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.stores import registry
from recovery.stores.state.shared_read import identities, windows
from tests.support.stores.stores import Store
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watching import bullmq, config_of, now_ms
from tests.support.waiting import until

BASE = "bull:mail"
MAIL = QueueRef("main", BASE)
ADMIN = Actor("person", "ada", "admin", "10.0.0.7", may_act=True, may_bulk=True)
OPERATOR = Actor("person", "otto", "operator", may_act=True)
VIEWER = Actor("person", "vera", "viewer")


class Bench:
    """The queue `bull:mail` of BullMQ 5, by default."""

    def __init__(self, queues: Store, state: Store, *, base: str = BASE) -> None:
        self.queues, self.state, self.base = queues, state, base
        self.ref = QueueRef("main", base)

    @property
    def client(self) -> redis.Redis:
        return self.queues.client

    def add(self, id: str, **fields: Any) -> None:
        """A field that is None is left out."""
        written = {"name": "mail", "data": "{}", "timestamp": now_ms(), "delay": 0, "priority": 0, "opts": "{}"}
        self.client.hset(
            f"{self.base}:{id}",
            mapping={name: value for name, value in (written | fields).items() if value is not None},
        )

    def orphan(self, *ids: str, **fields: Any) -> None:
        """Active, and nobody holds it."""
        for id in ids:
            self.add(id, **{"processedOn": now_ms() - 90_000, "ats": 1, **fields})
            self.client.lpush(f"{self.base}:active", id)

    def held(self, *ids: str, token: str = "worker:1", ttl: int | None = 30_000) -> None:
        self.orphan(*ids)
        for id in ids:
            self.client.set(f"{self.base}:{id}:lock", token, px=ttl)

    def failed(self, *ids: str, reason: str = "no route to host", at: int | None = None, **fields: Any) -> None:
        at = at or now_ms() - 60_000
        pipeline = self.client.pipeline(transaction=False)
        for number, id in enumerate(ids):
            written = {"name": "mail", "data": "{}", "opts": "{}", "timestamp": at, "processedOn": at, "atm": 1}
            written |= {"finishedOn": at + number, "failedReason": reason, "priority": 0, "delay": 0}
            pipeline.hset(f"{self.base}:{id}", mapping={**written, **fields})
            pipeline.zadd(f"{self.base}:failed", {id: at + number})
        pipeline.execute()

    def completed(self, *ids: str) -> None:
        at = now_ms() - 60_000
        for number, id in enumerate(ids):
            self.add(id, timestamp=at, processedOn=at, finishedOn=at + number, returnvalue="1", atm=1)
            self.client.zadd(f"{self.base}:completed", {id: at + number})

    def waiting(self, *ids: str) -> None:
        for id in ids:
            self.add(id)
            self.client.lpush(f"{self.base}:wait", id)

    def delayed(self, *ids: str) -> None:
        for id in ids:
            due = now_ms() + 3_600_000
            self.add(id, delay=3_600_000)
            self.client.zadd(f"{self.base}:delayed", {id: due * 4096})

    def ids(self, state: JobState) -> list[str]:
        """Next to run last, as a list has them; a sorted set from its beginning."""
        if state in (JobState.ACTIVE, JobState.WAITING, JobState.PAUSED):
            name = {JobState.ACTIVE: "active", JobState.WAITING: "wait", JobState.PAUSED: "paused"}[state]
            return [id.decode() for id in self.client.lrange(f"{self.base}:{name}", 0, -1)]
        return [id.decode() for id in self.client.zrange(f"{self.base}:{state.value}", 0, -1)]

    def dump(self) -> dict[bytes, Any]:
        """Everything there is in the queues' store, to see that nothing changed."""
        return {key: self.client.dump(key) for key in self.client.keys("*")}

    def look(self, flavour: LibraryVersion = BULLMQ) -> Snapshot:
        """What the scheduler would publish now."""
        roster = KnownQueues()
        roster.replace("main", [KnownQueue(self.ref, flavour, 0, 0)])
        collector = Collector(registry.registry(), roster)
        try:
            snapshot = collector.look(now_ms())
        finally:
            collector.close()
        snapshot_store.publish(self.state.client, snapshot)
        self.forget()
        return snapshot

    def forget(self) -> None:
        """What was read a moment ago is read again."""
        windows.forget()
        identities.forget()

    def order(
        self, act: Action, *ids: str, actor: Actor = ADMIN, reason: str = "it hangs", **options: Any
    ) -> ActionCommand:
        """The jobs as they are now; `options` are those of the act."""
        seen = runner.current_jobs(self.ref, ids) if ids else ()
        return ActionCommand(act, self.ref, actor, reason, seen, ActionOptions(**options))


@contextmanager
def set_up(queues: Store, state: Store, directory: Path, patch: pytest.MonkeyPatch, **settings: Any) -> Iterator[Bench]:
    config_of(directory, state, {"main": queues}, **settings)
    patch.setenv("UNSTALL_CONFIG", str(directory / "unstall.toml"))
    registry.reset()
    windows.forget()
    bullmq(queues.client, BASE)
    yield Bench(queues, state)
    registry.reset()


def all_of(bench: Bench, act: Action, state: JobState = JobState.FAILED, **wanted: Any) -> BulkRun:
    order = ActionCommand(act, bench.ref, ADMIN, "the mail server is back")
    return bulk_runs.order(order, BulkSelection(state, now_ms(), **wanted))


def finish(hands: BulkRunner, run: BulkRun) -> BulkProgress:
    def over() -> BulkProgress | None:
        hands._held.clear()  # not to wait until it is tried again
        hands.run(0)
        found = progress_of.progress(run.pk, now_ms())
        return None if found.is_open else found

    found = until(over, 30)
    assert found is not None
    return found
