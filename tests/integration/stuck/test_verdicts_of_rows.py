"""Verdicts on rows that somebody looks at now: for a page, and for an act."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import Snapshot
from recovery.domain.stuck.types import Verdict, VerdictKind
from recovery.reads.queues import job_lists
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores import registry as registries
from recovery.stores.state.shared_read import SharedReads
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, WatchBench, active

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    registries.reset()
    yield
    registries.reset()


def use(one: WatchBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process's registry is the bench's, and nothing is remembered of the last page."""
    for module in (stuck_queries, job_lists):
        monkeypatch.setattr(module, "registry", lambda: one.registry)
    monkeypatch.setattr(stuck_queries, "windows", SharedReads())


def verdicts(one: WatchBench, ref: QueueRef, snapshot: Snapshot | None, *, later: int = 0) -> dict[str, Verdict]:
    sample = snapshot.queue(ref) if snapshot else None
    queue = job_lists.locate(ref, snapshot) if snapshot is None else Queue(ref, sample.flavour, sample)  # type: ignore[union-attr]
    page = queue.reader.page(queue.wire, ref, JobState.ACTIVE, size=100)
    return stuck_queries.verdicts_of_rows(queue, page.rows, snapshot, shared_clock.now() + later)


def test_a_page_proves_an_orphan_of_a_new_bullmq_by_itself(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, one = QueueRef("main", "bull:new"), watch_bench(valkey)
    active(valkey, ref.base, "1", "2")
    valkey.client.set(f"{ref.base}:2:lock", "w:1", px=30_000)
    one.discover()
    use(one, monkeypatch)
    found = verdicts(one, ref, one.collector.look(shared_clock.now()))
    assert {id: verdict.kind for id, verdict in found.items()} == {
        "1": VerdictKind.ABANDONED,
        "2": VerdictKind.WORKER_LOST,
    }


def test_without_a_snapshot_nothing_is_said_of_workers(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, one = QueueRef("main", "bull:new"), watch_bench(valkey)
    active(valkey, ref.base, "1")
    use(one, monkeypatch)
    (found,) = verdicts(one, ref, None).values()
    assert found.kind is VerdictKind.ORPHAN
    assert "not known" in found.fate


def test_a_page_of_an_older_library_uses_the_sightings_of_the_watch(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, one = QueueRef("main", "bull:old"), watch_bench(valkey)
    active(valkey, ref.base, "1", flavour="bull")
    one.discover()
    one.look()
    use(one, monkeypatch)
    assert verdicts(one, ref, one.snapshot)["1"].kind is VerdictKind.UNLOCKED
    assert verdicts(one, ref, one.snapshot, later=1_500)["1"].kind is VerdictKind.ABANDONED


def test_a_waiting_child_of_a_failed_parent_is_a_stray(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref, one = QueueRef("main", "bull:child"), watch_bench(valkey)
    active(valkey, ref.base, "1", parentKey="bull:flow:9")
    valkey.client.rename(f"{ref.base}:active", f"{ref.base}:wait")
    valkey.client.set("bull:flow:id", 9)
    one.discover()
    use(one, monkeypatch)
    snapshot = one.collector.look(shared_clock.now())
    queue = job_lists.locate(ref, snapshot)
    rows = queue.reader.page(queue.wire, ref, JobState.WAITING, size=100).rows
    assert stuck_queries.verdicts_of_rows(queue, rows, snapshot, shared_clock.now())["1"].kind is VerdictKind.STRAY


def test_nobody_has_looked_is_no_zero(watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one = watch_bench(valkey)
    use(one, monkeypatch)
    assert stuck_queries.newest_inbox() is None


def test_the_newest_inbox_is_what_the_watch_published(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = watch_bench(valkey)
    active(valkey, "bull:new", "1")
    one.discover()
    published = one.look()
    use(one, monkeypatch)
    assert stuck_queries.newest_inbox() == published
    assert published.people == 1
