"""The orphan-watch over queues written by hand: what one look says, and what it takes two for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import VerdictKind
from recovery.models import Incident
from tests.support.stores.cluster import Cluster
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, Make, WatchBench, active, restarted
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

LONG = "[thresholds]\nstalled_interval = 30\n"
STARTED = 1_760_000_000_000


def test_a_job_of_an_older_library_takes_two_sightings_an_interval_apart(watch_bench: Make, valkey: Store) -> None:
    """Bull leaves a job active and lock-less for a moment: one look, however sure, proves nothing."""
    ref = QueueRef("main", "bull:old")
    active(valkey, ref.base, "1", flavour="bull")
    one = watch_bench(valkey, LONG)
    one.discover()
    start = one.look()
    assert start.counts == {VerdictKind.UNLOCKED: 1}
    assert start.rows == ()
    assert one.look(later=29_000).counts == {VerdictKind.UNLOCKED: 1}
    assert one.look(later=29_500).rows[0].verdict.kind is VerdictKind.UNLOCKED
    assert one.look(later=31_000).counts == {VerdictKind.ABANDONED: 1}


def test_a_lock_that_ran_out_as_we_looked_proves_it_with_the_second_look(watch_bench: Make, valkey: Store) -> None:
    ref, one = _late(watch_bench, valkey)
    valkey.client.delete(f"{ref.base}:1:lock")
    assert one.look(later=30_500).counts == {VerdictKind.UNLOCKED: 1}
    (row,) = one.look(later=32_500).rows
    assert row.verdict.kind is VerdictKind.ABANDONED
    assert "Its lock expired: no worker renewed it." in row.verdict.evidence
    assert one.look(later=62_000).counts == {VerdictKind.ABANDONED: 1}


def test_a_lock_that_was_gone_before_its_time_proves_nothing(watch_bench: Make, valkey: Store) -> None:
    """Whoever ends a job, or gives it back, deletes its lock; and then it may have been taken anew."""
    ref, one = _late(watch_bench, valkey)
    valkey.client.delete(f"{ref.base}:1:lock")
    assert one.look(later=27_000).counts == {VerdictKind.UNLOCKED: 1}
    assert one.look(later=31_000).counts == {VerdictKind.UNLOCKED: 1}
    assert one.look(later=56_500).counts == {VerdictKind.UNLOCKED: 1}
    assert one.look(later=57_500).counts == {VerdictKind.ABANDONED: 1}


def test_a_lock_of_bullmq_4_proves_nothing_by_running_out(watch_bench: Make, valkey: Store) -> None:
    """Its retry leaves no trace in the job until a worker has locked it again."""
    ref, one = _late(watch_bench, valkey, flavour="bullmq", version="4.18.3")
    valkey.client.delete(f"{ref.base}:1:lock")
    assert one.look(later=30_500).counts == {VerdictKind.UNLOCKED: 1}
    assert one.look(later=32_500).counts == {VerdictKind.UNLOCKED: 1}


def test_another_process_did_not_see_the_lock_run_out(watch_bench: Make, valkey: Store) -> None:
    ref, one = _late(watch_bench, valkey)
    valkey.client.delete(f"{ref.base}:1:lock")
    one.look(later=30_500)
    again = restarted(one, lambda: watch_bench(valkey, LONG))
    assert again.look(later=33_000).counts == {VerdictKind.UNLOCKED: 1}


def test_a_job_that_was_taken_anew_stands_behind_the_others(watch_bench: Make, valkey: Store) -> None:
    """Given back without a trace in itself, and taken by a worker that has not locked it yet."""
    ref, one = _late(watch_bench, valkey, "1", "2")
    valkey.client.delete(f"{ref.base}:1:lock")
    valkey.client.lmove(f"{ref.base}:active", f"{ref.base}:active", "RIGHT", "LEFT")
    assert one.look(later=30_500).counts[VerdictKind.UNLOCKED] == 1
    assert one.look(later=32_500).counts[VerdictKind.UNLOCKED] == 1


def test_a_restart_of_redis_may_have_lost_the_renewal(watch_bench: Make, serve: Callable[..., Store]) -> None:
    store = serve()
    ref, one = _late(watch_bench, store)
    store.stop()
    store.start()
    active(store, ref.base, "1", flavour="bull", processedOn=STARTED)
    until(lambda: one.look(later=30_500).counts == {VerdictKind.UNLOCKED: 1}, what="a look after the restart")
    assert one.look(later=33_000).counts == {VerdictKind.UNLOCKED: 1}


def _late(make: Make, store: Store, *ids: str, **library: str) -> tuple[QueueRef, WatchBench]:
    """Jobs of Bull with locks of 30 s, of which 5 s are left, 25 s from now."""
    ref, ids = QueueRef("main", "bull:old"), ids or ("1",)
    active(store, ref.base, *ids, **{"flavour": "bull", "processedOn": STARTED, **library})
    for id in ids:
        store.client.set(f"{ref.base}:{id}:lock", "w", px=30_000)
    one = make(store, LONG)
    one.discover()
    assert one.look().looked == len(ids)
    for id in ids:
        store.client.pexpire(f"{ref.base}:{id}:lock", 5_000)
    assert one.look(later=25_000).looked == len(ids)
    return ref, one


def test_a_job_that_was_started_again_between_two_looks_is_seen_anew(watch_bench: Make, valkey: Store) -> None:
    ref = QueueRef("main", "bull:old")
    active(valkey, ref.base, "1", flavour="bull", processedOn=1_760_000_000_000)
    one = watch_bench(valkey)
    one.discover()
    one.look()
    valkey.client.hset(f"{ref.base}:1", "processedOn", 1_760_000_009_000)
    assert one.look(later=5_000).counts == {VerdictKind.UNLOCKED: 1}
    assert one.look(later=10_000).counts == {VerdictKind.ABANDONED: 1}


def test_sightings_outlive_the_process(watch_bench: Make, valkey: Store, state_store: Store) -> None:
    ref = QueueRef("main", "bull:old")
    active(valkey, ref.base, "1", flavour="bull")
    one = watch_bench(valkey)
    one.discover()
    one.look()
    again = restarted(one, lambda: watch_bench(valkey))
    assert again.look(later=5_000).counts == {VerdictKind.ABANDONED: 1}
    incident = Incident.objects.get()
    forgetful = restarted(again, lambda: watch_bench(valkey))
    assert forgetful.look(later=9_000).rows[0].incident == incident.pk
    assert Incident.objects.count() == 1


def test_one_look_proves_an_orphan_of_a_new_bullmq(watch_bench: Make, store: Store) -> None:
    ref = QueueRef("main", "bull:new")
    active(store, ref.base, "1", "2")
    store.client.set(f"{ref.base}:2:lock", "w:1", px=30_000)
    store.client.set(f"{ref.base}:stalled-check", "1", px=20_000)
    one = watch_bench(store)
    one.discover()
    inbox = one.look()
    assert inbox.counts == {VerdictKind.ORPHAN: 1, VerdictKind.RUNNING: 1}
    assert (inbox.looked, inbox.stuck) == (2, 1)
    assert inbox.rows[0].verdict.fate.startswith("A worker's stalled check picks it up within")


def test_ghosts_overdue_and_endless_locks_are_told(watch_bench: Make, valkey: Store) -> None:
    ref = QueueRef("main", "bull:odd")
    active(valkey, ref.base, "ghost", "residue", "long", "endless")
    valkey.client.delete(f"{ref.base}:ghost", f"{ref.base}:residue")
    valkey.client.hset(f"{ref.base}:residue", "stc", 1)
    valkey.client.set(f"{ref.base}:stalled-check", "1", px=20_000)
    valkey.client.hset(f"{ref.base}:long", "processedOn", 1_760_000_000_000)
    valkey.client.set(f"{ref.base}:long:lock", "w:1", px=600_000)
    valkey.client.set(f"{ref.base}:endless:lock", "w:2")
    one = watch_bench(valkey, f'{SHORT}[[queues]]\nname = "bull:odd"\noverdue_after = 600\n')
    one.discover()
    assert one.look().counts == {VerdictKind.MISSING_DATA: 2, VerdictKind.OVERDUE: 1, VerdictKind.RUNNING: 1}
    inbox = one.look(later=25_000)
    kinds = {row.job.id: row.verdict.kind for row in inbox.rows}
    assert kinds["endless"] is VerdictKind.WORKER_LOST
    assert inbox.people == 4
    endless = next(row for row in inbox.rows if row.job.id == "endless")
    assert endless.row is not None
    assert endless.row.lock is not None
    assert (endless.row.lock.token, endless.row.lock.ttl) == ("w:2", None)


def test_a_child_of_a_failed_parent_is_a_stray(watch_bench: Make, valkey: Store) -> None:
    ref, flow = QueueRef("main", "bull:child"), "bull:flow"
    active(valkey, ref.base, "1", "2", parentKey=f"{flow}:9")
    valkey.client.hset(f"{ref.base}:2", "parentKey", f"{flow}:10")
    for id in ("1", "2"):
        valkey.client.set(f"{ref.base}:{id}:lock", "w:1", px=30_000)
    valkey.client.set(f"{ref.base}:stalled-check", "1", px=20_000)
    valkey.client.set(f"{flow}:id", 10)
    valkey.client.hset(f"{flow}:9", mapping={"name": "flow", "data": "{}", "timestamp": 1})
    valkey.client.zadd(f"{flow}:failed", {"9": 1})
    valkey.client.hset(f"{flow}:10", mapping={"name": "flow", "data": "{}", "timestamp": 1})
    one = watch_bench(valkey)
    one.discover()
    (stray,) = one.look().rows
    assert (stray.job.id, stray.verdict.kind) == ("1", VerdictKind.STRAY)
    assert stray.verdict.evidence[0] == "Its parent has failed."


def test_markers_of_bullmq_4_are_no_jobs(watch_bench: Make, valkey: Store) -> None:
    ref = QueueRef("main", "bull:four")
    active(valkey, ref.base, "1", version="4.18.3")
    valkey.client.lpush(f"{ref.base}:active", "0:1760000000000")
    one = watch_bench(valkey)
    one.discover()
    assert one.look().looked == 1


def test_queues_of_a_cluster_are_looked_at_wherever_they_live(watch_bench: Make, cluster: Cluster) -> None:
    bases = [f"{{bull{number}}}:jobs" for number in range(6)]
    for base in bases:
        active(cluster, base, "1", "2", parentKey="{bull0}:flow:9")
        cluster.client.set(f"{base}:2:lock", "w:1", px=30_000)
        cluster.client.set(f"{base}:stalled-check", "1", px=20_000)
    cluster.client.set("{bull0}:flow:id", 9)
    one = watch_bench(cluster)
    one.discover()
    inbox = one.look()
    assert inbox.faults == ()
    assert inbox.counts == {VerdictKind.ORPHAN: 6, VerdictKind.STRAY: 6}
    assert {row.name for row in inbox.rows} == {"mail"}
