"""The user of docs/redis-acl.md is enough to watch, and can do nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, Snapshot
from recovery.domain.stuck.types import VerdictKind
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import WatchBench, active
from tests.support.stuck.watching import NOW, add, bullmq, config_of

DOCUMENT = Path(__file__).parents[3] / "docs" / "redis-acl.md"
JOBS = QueueRef("main", "bull:jobs")


@pytest.fixture(params=["valkey", "redis"])
def guarded(request: pytest.FixtureRequest, serve: Callable[..., Store]) -> Store:
    """A store with one queue in it and the documented user."""
    store = serve(request.param)
    bullmq(store.client, JOBS.base)
    add(store.client, JOBS.base, "1", "2")
    return store


@pytest.fixture
def look(tmp_path: Path, state_store: Store) -> Iterator[Callable[[Store, str], Snapshot]]:
    """What the collector sees as the user of this rule."""
    closing: list[ConnectionRegistry] = []

    def take(store: Store, rule: str) -> Snapshot:
        registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": admit(store, rule)}))
        closing.append(registry)
        roster = KnownQueues()
        Discoverer(registry, roster).run(NOW)
        collector = Collector(registry, roster)
        try:
            return collector.look(NOW)
        finally:
            collector.close()

    yield take
    for registry in closing:
        registry.close()


def test_the_documented_user_sees_everything(guarded: Store, look: Callable[[Store, str], Snapshot]) -> None:
    snapshot = look(guarded, documented())
    sample = snapshot.queue(JOBS)
    assert sample is not None
    assert (sample.error, sample.counts.waiting, sample.workers) == ("", 2, 0)
    assert snapshot.deployments[0].error == ""
    assert snapshot.deployments[0].server


def test_the_documented_user_reads_lists_and_jobs(guarded: Store, tmp_path: Path, state_store: Store) -> None:
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": admit(guarded, documented())}))
    try:
        wire = registry.wire("main")
        ours = reader(LibraryVersion(QueueLibrary.BULLMQ, 5))
        assert [row.id for row in ours.page(wire, JOBS, JobState.WAITING).rows] == ["1", "2"]
        assert ours.job(wire, JOBS, "1").data.value == "{}"
        assert ours.row(wire, JOBS, "1").state is JobState.WAITING
    finally:
        registry.close()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("missing", "kind"), [("", VerdictKind.ABANDONED), (" -pttl", VerdictKind.UNKNOWN)])
def test_the_documented_user_can_prove_an_orphan(
    guarded: Store, tmp_path: Path, state_store: Store, missing: str, kind: VerdictKind
) -> None:
    active(guarded, JOBS.base, "9")
    admitted = admit(guarded, documented() + missing)
    one = WatchBench(config_of(tmp_path, state_store, {"main": admitted}))
    try:
        one.discover()
        assert one.look().counts == {kind: 1}
    finally:
        one.close()


@pytest.mark.parametrize("command", [("SET", "a", "1"), ("DEL", "bull:jobs:1"), ("FLUSHALL",), ("KEYS", "*")])
def test_the_documented_user_changes_nothing(guarded: Store, command: tuple[str, ...]) -> None:
    admit(guarded, documented())
    with (
        guarded.connect(username="unstall", password="secret") as client,
        pytest.raises(redis.exceptions.NoPermissionError),
    ):
        client.execute_command(*command)


def test_without_client_list_workers_are_unknown_and_the_rest_is_there(
    guarded: Store, look: Callable[[Store, str], Snapshot]
) -> None:
    sample = look(guarded, documented().replace("+client|list", "")).queue(JOBS)
    assert sample is not None
    assert sample.workers is None
    assert sample.counts.waiting == 2


def documented(user: str = "unstall") -> str:
    """The rule as the document has it."""
    (rule,) = re.findall(rf"^user {user} (.+)$", DOCUMENT.read_text(), re.MULTILINE)
    return str(rule).replace(">choose-a-password", ">secret")


def admit(store: Store, rule: str) -> str:
    """Makes the user, and gives the URL it connects with."""
    store.do("ACL", "SETUSER", "unstall", "reset", *rule.split())
    return store.url.replace("redis://", "redis://unstall:secret@")
