"""The orphan-watch when something is away, and what it costs when all is well."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import LossCause, VerdictKind
from recovery.models import Incident
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, Counted, Make, WatchBench, active, config_for, contents, orphan
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


# -- what goes wrong


def test_a_dead_deployment_keeps_what_was_seen_and_closes_nothing(
    watch_bench: Make, serve: Callable[..., Store]
) -> None:
    store, ref = serve(), QueueRef("main", "bull:dead")
    one = watch_bench(store)
    orphan(one, store, ref)
    before = one.look()
    store.stop()
    inbox = until(lambda: (found := one.look()).faults and found)
    assert inbox.rows == before.rows
    assert inbox.tally(ref) is not None
    assert inbox.queues[0].error
    assert "The last known state is kept." in inbox.faults[0]
    assert Incident.objects.get().closed_at is None


def test_a_list_that_cannot_be_read_is_an_error_of_its_queue_alone(watch_bench: Make, valkey: Store) -> None:
    good, bad = QueueRef("main", "bull:good"), QueueRef("main", "bull:bad")
    active(valkey, good.base, "1")
    active(valkey, bad.base, "1")
    one = watch_bench(valkey)
    one.discover()
    assert one.look().stuck == 2
    valkey.client.delete(f"{bad.base}:active")
    valkey.client.set(f"{bad.base}:active", "x")
    inbox = one.look()
    assert inbox.tally(good).stuck == 1  # type: ignore[union-attr] # it was there a moment ago
    assert "WRONGTYPE" in inbox.tally(bad).error  # type: ignore[union-attr] # as above
    assert Incident.objects.filter(closed_at=None).count() == 2


def test_locks_that_were_lost_with_a_restart_are_told_so(watch_bench: Make, serve: Callable[..., Store]) -> None:
    """The first look after it: the list came back from disk, the locks were too new to be in it."""
    store, ref = serve(), QueueRef("main", "bull:restarted")
    active(store, ref.base, "1", "2", processedOn=1_760_000_000_000)
    for id in ("1", "2"):
        store.client.set(f"{ref.base}:{id}:lock", "w:1", px=60_000)
    store.client.set(f"{ref.base}:stalled-check", "1", px=60_000)
    one = watch_bench(store)
    one.discover()
    assert one.look().counts == {VerdictKind.RUNNING: 2}
    store.stop()
    store.start()
    active(store, ref.base, "1", "2", processedOn=1_760_000_000_000)
    store.client.set(f"{ref.base}:stalled-check", "1", px=60_000)
    inbox = until(lambda: (found := one.look(later=40_000)).stuck == 2 and found, what="a look after the restart")
    assert {row.verdict.cause for row in inbox.rows} == {LossCause.RESTARTED}
    assert "2 locks were lost with it" in inbox.rows[0].verdict.cause_evidence


def test_after_a_restart_no_worker_is_said_to_have_gone(watch_bench: Make, serve: Callable[..., Store]) -> None:
    """All connections are new then, and some are not there yet."""
    store, ref = serve(), QueueRef("main", "bull:restarted")
    name = f"bull:{b64encode(b'restarted').decode()}"
    active(store, ref.base, "1")
    one = watch_bench(store)
    with store.connect(client_name=name) as worker:
        worker.ping()
        one.discover()
        one.look()
    store.stop()
    store.start()
    active(store, ref.base, "1")
    store.client.set(f"{ref.base}:1:lock", "w:1", px=30_000)
    doomed = one.sees(ref, VerdictKind.WORKER_LOST)
    assert doomed.verdict.why == "No worker of this queue is connected, and its lock is still there."


def test_without_its_state_store_the_look_goes_on_and_says_so(
    watch_bench: Make, valkey: Store, serve: Callable[..., Store], tmp_path: Path
) -> None:
    state, ref = serve(), QueueRef("main", "bull:alone")
    active(valkey, ref.base, "1")
    one = WatchBench(config_for(tmp_path, state, valkey, SHORT))
    try:
        one.discover()
        one.look()
        state.stop()
        active(valkey, ref.base, "2")
        one.collector.look(1)
        inbox = one.watch.look(2)
        assert inbox.looked == 2
        assert any("The state store cannot be used" in fault for fault in inbox.faults)
    finally:
        one.close()


# -- what it costs


def test_nothing_is_written_to_the_queues(watch_bench: Make, valkey: Store) -> None:
    ref = QueueRef("main", "bull:read")
    active(valkey, ref.base, *map(str, range(20)))
    before = contents(valkey)
    one = watch_bench(valkey)
    one.discover()
    one.look()
    one.look(later=60_000)
    assert contents(valkey) == before


def test_ten_thousand_active_jobs_cost_few_round_trips_and_no_long_call(watch_bench: Make, valkey: Store) -> None:
    ref, pipeline = QueueRef("main", "bull:large"), valkey.client.pipeline(transaction=False)
    active(valkey, ref.base, *map(str, range(10_000)))
    for id in range(0, 10_000, 2):
        pipeline.set(f"{ref.base}:{id}:lock", "w:1", px=600_000)
    pipeline.set(f"{ref.base}:stalled-check", "1", px=600_000)
    pipeline.execute()
    one = watch_bench(valkey)
    one.discover()
    assert one.look().counts == {VerdictKind.RUNNING: 5_000, VerdictKind.ORPHAN: 5_000}
    wire = Counted(one.registry.wire("main"))
    with wire:
        inbox = one.look()
    assert inbox.stuck == 5_000
    assert len(inbox.rows) == 1_000
    assert wire.calls <= 60
    assert wire.commands <= 12_000
    valkey.client.config_set("slowlog-log-slower-than", 5_000)
    until(lambda: _is_quick(one, valkey), 30, "a look in which no call is slow; a store that has to wait for a core is")


def _is_quick(one: WatchBench, valkey: Store) -> bool:
    valkey.client.slowlog_reset()
    one.look()
    return valkey.client.slowlog_len() == 0
