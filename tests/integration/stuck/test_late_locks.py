"""Jobs of n8n whose locks miss a renewal: seen within seconds, listed, and never taken for an all-clear."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator

import pytest
import redis

from recovery import signing
from recovery.domain.identifiers import QueueRef
from recovery.domain.stuck.types import LossCause, VerdictKind
from recovery.reads.stuck import observations
from recovery.scanners.orphan_watch import active_job_reader
from recovery.stores.state import state_keys
from tests.support.n8n.n8n_instances import HEAD, register
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, WatchBench, active, restarted
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

N8N = QueueRef("main", "bull:jobs")
LOCK = 600_000  # ms: so long that the time a look takes is nothing beside it
EVERY = 100_000


@pytest.fixture(autouse=True)
def workers(valkey: Store) -> Iterator[list[redis.Redis]]:
    """A worker of each queue is connected."""
    clients = []
    for name in ("jobs", "mail", "mq"):
        clients.append(valkey.connect())
        clients[-1].client_setname(f"bull:{b64encode(name.encode()).decode()}")
    yield clients
    for client in clients:
        client.close()


def lock(store: Store, *ids: str, left: int = LOCK, ref: QueueRef = N8N) -> None:
    for id in ids:
        store.client.set(f"{ref.base}:{id}:lock", "w", px=left)


def n8n(make: Make, store: Store, *ids: str) -> WatchBench:
    active(store, N8N.base, *ids, flavour="bull", processedOn=1_760_000_000_000)
    lock(store, *ids)
    one = make(store)
    one.discover()
    return one


def test_a_lock_is_late_by_n8ns_own_settings_before_any_renewal_was_seen(watch_bench: Make, valkey: Store) -> None:
    one = n8n(watch_bench, valkey, "1")
    assert one.look().counts == {VerdictKind.RUNNING: 1}
    lock(valkey, "1", left=455_000)
    assert one.look(later=5_000).counts == {VerdictKind.RUNNING: 1}
    lock(valkey, "1", left=445_000)
    (row,) = one.look(later=10_000).rows
    assert row.verdict.kind is VerdictKind.LATE
    assert "which come every 10 s by n8n's default" in row.verdict.why
    assert row.name == "mail"


def test_the_rhythm_that_is_seen_decides_and_outlives_the_process(watch_bench: Make, valkey: Store) -> None:
    """Renewed every 100 s of 600, a lock is late when less than 450 s are left; every 200 s, less than 300."""
    one = n8n(watch_bench, valkey, "1", "2")
    one.look()
    lock(valkey, "1", "2", left=LOCK)
    one.look(later=200_000)
    lock(valkey, "1", left=LOCK)
    lock(valkey, "2", left=310_000)
    assert one.look(later=400_000).counts == {VerdictKind.RUNNING: 2}
    lock(valkey, "2", left=290_000)
    (row,) = one.look(later=401_000).rows
    assert (row.job.id, row.verdict.kind) == ("2", VerdictKind.LATE)
    assert "which come every 3 min" in row.verdict.why
    again = restarted(one, lambda: watch_bench(valkey))
    assert again.look(later=402_000).counts == {VerdictKind.RUNNING: 1, VerdictKind.LATE: 1}


def test_one_worker_that_stood_still_changes_no_rhythm_that_others_confirm(watch_bench: Make, valkey: Store) -> None:
    one = n8n(watch_bench, valkey, "1", "2")
    one.look()
    lock(valkey, "1", left=LOCK)
    one.look(later=EVERY)
    lock(valkey, "1", left=LOCK)  # the other one has not been renewed for 140 s
    one.look(later=EVERY + 40_000)
    known = observations.memory(one.registry.state(), N8N)[0]
    assert known.renews_every == pytest.approx(EVERY, rel=0.25)


def test_a_changed_rhythm_is_learned_when_nothing_confirms_the_old_one(watch_bench: Make, valkey: Store) -> None:
    one = n8n(watch_bench, valkey, "1")
    one.look()
    for at in (EVERY, 2 * EVERY):
        lock(valkey, "1")
        one.look(later=at)
    assert observations.memory(one.registry.state(), N8N)[0].renews_every == pytest.approx(EVERY, rel=0.25)
    lock(valkey, "1")
    one.look(later=5 * EVERY)
    assert observations.memory(one.registry.state(), N8N)[0].renews_every == pytest.approx(3 * EVERY, rel=0.25)


def test_the_interval_of_a_job_that_is_taken_anew_is_never_learned_elsewhere(watch_bench: Make, valkey: Store) -> None:
    """Another application of Bull may retry a job at once: its lock moves by any time."""
    ref = QueueRef("main", "bull:mail")
    active(valkey, ref.base, "1", flavour="bull", processedOn=1_760_000_000_000)
    lock(valkey, "1", ref=ref)
    one = watch_bench(valkey)
    one.discover()
    one.look()
    lock(valkey, "1", ref=ref)
    one.look(later=20_000)
    assert observations.memory(one.registry.state(), ref)[0].renews_every == 0
    lock(valkey, "1", left=250_000, ref=ref)
    assert one.look(later=25_000).counts == {VerdictKind.RUNNING: 1}


def test_a_lock_that_is_renewed_after_all_is_listed_no_more(watch_bench: Make, valkey: Store) -> None:
    one = n8n(watch_bench, valkey, "1")
    one.look()
    lock(valkey, "1", left=300_000)
    assert one.look(later=5_000).stuck == 1
    assert one.look(later=10_000).rows[0].since == one.look(later=10_500).rows[0].since
    lock(valkey, "1")
    cleared = one.look(later=15_000)
    assert (cleared.counts, cleared.rows) == ({VerdictKind.RUNNING: 1}, ())
    assert observations.marks(one.registry.state(), N8N) == {}


def test_late_jobs_beyond_what_a_page_lists_are_counted(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_job_reader, "LATE_LOOKS", 2)
    active(valkey, "bull:mq", "1", "2", "3", processedOn=1_760_000_000_000)
    one, ref = watch_bench(valkey), QueueRef("main", "bull:mq")
    lock(valkey, "1", "2", "3", ref=ref)
    one.discover()
    one.look()
    lock(valkey, "1", "2", "3", left=200_000, ref=ref)
    found = one.look(later=5_000)
    assert (found.counts, len(found.rows)) == ({VerdictKind.LATE: 3}, 2)
    until(lambda: len(one.look(later=5_500).rows) == 3, what="each of them was looked at")


def test_what_a_version_before_remembered_of_a_queue_is_still_read(watch_bench: Make, valkey: Store) -> None:
    one = watch_bench(valkey)
    value = json.dumps([5, None, 30_000, 60_000, 7, [], []]).encode()
    row = signing.seal("queue memory", value, "main", N8N.base)
    one.registry.state().hset(state_keys.watch_memory("main"), N8N.base, row)
    known, _ = observations.memory(one.registry.state(), N8N)
    assert (known.lock_length, known.renews_every) == (60_000, 0)


def test_the_worker_that_died_beside_a_living_one_is_named_with_its_late_job(
    watch_bench: Make, valkey: Store, workers: list[redis.Redis]
) -> None:
    """By the registry of n8n 2.20 and later; seconds after its connection has closed, and when its heartbeats end."""
    dying = valkey.connect()
    register(valkey.client, "a", beat=10, began=10)
    register(valkey.client, "b", beat=3, began=900)
    dying.client_setname(f"bull:{b64encode(b'jobs').decode()}")
    one = n8n(watch_bench, valkey, "1")
    one.look()
    dying.close()
    one.look()
    register(valkey.client, "a", beat=22, began=22)  # 12 s later, and what is left of a key goes by the store's clock
    register(valkey.client, "b")
    lock(valkey, "1", left=440_000)
    (late,) = one.look(later=12_000).rows
    assert late.verdict.kind is VerdictKind.LATE
    assert "Worker worker-a lost its connection" in late.verdict.why
    register(valkey.client, "b")
    valkey.client.delete(f"{HEAD}a", f"{N8N.base}:1:lock")  # both have run out
    one.look(later=500_000)
    (lost,) = one.look(later=500_500).rows
    assert lost.verdict.cause is LossCause.CRASHED
    assert "has sent n8n no heartbeat since" in lost.verdict.cause_evidence


def test_a_registry_that_may_not_be_read_is_asked_once_a_minute(watch_bench: Make, valkey: Store) -> None:
    """Each refusal is an entry in the ACL log; the looks go on without it."""
    one = n8n(watch_bench, valkey, "1")
    valkey.client.set(f"{HEAD}members", "x")  # as refused as by an ACL
    one.look()
    asked = []
    for later in (30_000, 61_000):
        before = scards(valkey)
        one.look(later=later)
        asked.append(scards(valkey) - before)
    assert asked == [0, 1]


def scards(store: Store) -> int:
    calls: int = store.client.info("commandstats")["cmdstat_scard"]["calls"]
    return calls
