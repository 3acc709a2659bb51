"""Stores that stop, come back without locks, or fail over while workers run on: nothing healthy is put back to wait."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.identifiers import QueueRef
from recovery.domain.safety_limits.redis_pause import LOCK_LENGTHS, PATIENCE, RedisPauseTrigger
from recovery.domain.time_units import MINUTE
from tests.fault.proxy import Proxy
from tests.support.acting import ADMIN
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.cluster import Cluster
from tests.support.stores.sentinel import Sentinel
from tests.support.stores.stores import Store
from tests.support.stuck.armed import Armed, armed, held_jobs
from tests.support.stuck.watch_bench import active
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

SOON = 60.0  # seconds, on a machine that has other things to do
LOCK_MS = 5_000
JOBS = 25
LENGTH = 60_000  # ms of a lock that nobody renews: longer than its test
IDS = [str(number) for number in range(1, JOBS + 1)]
MAIL = QueueRef("main", "bull:mail")
Watch = Callable[[Store | str], Armed]


@pytest.fixture
def watch(tmp_path: Path, state_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Watch]:
    made = []

    def make(where: Store | str) -> Armed:
        made.append(armed(tmp_path, state_store, where, monkeypatch))
        return made[-1].__enter__()

    yield make
    for one in made:
        one.__exit__(None, None, None)


def work(libraries: Fleet, store: Store, count: int = JOBS) -> Queue:
    """Jobs that a real worker runs, and goes on running whatever happens to the store."""
    jobs = libraries["bullmq5"].queue(store)
    jobs.add_many(count)
    jobs.work("hang", apart=True, concurrency=count, lockDuration=LOCK_MS, stalledInterval=3_600_000)
    until(lambda: jobs.counts()["active"] == count, SOON)
    return jobs


def scene(watch: Watch, serve: Callable[..., Store], libraries: Fleet, count: int) -> tuple[Store, Queue, Armed]:
    """So many jobs that run on a store of the test's own, and a watch that has seen them."""
    store = serve()
    jobs = work(libraries, store, count)
    one = watch(store)
    one.settle()
    return store, jobs, one


def silence(one: Armed, store: Store) -> None:
    """The store stops for longer than a lock lasts, and is looked at all the while."""
    store.pause()
    ends = time.monotonic() + 1.2 * LOCK_MS / 1000
    until(lambda: one.look().finds == () and time.monotonic() > ends, SOON)
    store.resume()


def lasts(one: Armed) -> int:
    """How long each hold is meant to last that goes by itself, in ms."""
    return max(hold.until - hold.since for hold in one.pause.holds if hold.until is not None)


def lose_locks(store: Store, base: str) -> None:
    """Restarted from a dump that has everything but the locks."""
    store.client.delete(*store.client.keys(f"{base}:*:lock"))
    store.client.save()
    store.kill()
    store.start()


def test_a_store_that_stopped_for_longer_than_a_lock_holds_until_a_person_lets_it_go(
    watch: Watch, serve: Callable[..., Store], libraries: Fleet
) -> None:
    store, jobs, one = scene(watch, serve, libraries, JOBS)
    silence(one, store)
    until(lambda: one.look() and RedisPauseTrigger.LOCKS in one.why, SOON, "the locks are found lost")
    assert RedisPauseTrigger.SILENT in one.why
    report = one.look()
    assert any("25 of 25 active jobs lost their locks between two checks" in hold for hold in report.holds)
    assert (jobs.counts()["active"], one.acts) == (JOBS, 0)
    auto_retry_limits.release(ADMIN, "store", "main", "", "", "its workers are all restarted")
    until(lambda: one.look() and jobs.counts()["waiting"] == JOBS, SOON, "they are put back to wait")
    assert one.acts == 1


def test_a_few_jobs_wait_until_every_worker_had_time_to_end_them(
    watch: Watch, serve: Callable[..., Store], libraries: Fleet
) -> None:
    """Too few to say that the store is wrong; but it was silent, so they are given two lock lengths."""
    store, jobs, one = scene(watch, serve, libraries, 3)
    silence(one, store)
    until(lambda: one.look() and one.why, SOON, "it answers again")
    assert one.why == [RedisPauseTrigger.SILENT]
    assert lasts(one) >= LOCK_LENGTHS * LOCK_MS
    for _ in range(3):
        one.look()
    assert (jobs.counts()["active"], one.acts) == (3, 0)
    one.pass_by(lasts(one))
    until(lambda: one.look() and jobs.counts()["waiting"] == 3, SOON, "it went by itself")


def test_whoever_begins_after_a_silence_that_nobody_saw_holds(
    watch: Watch, serve: Callable[..., Store], libraries: Fleet
) -> None:
    """The database was away too, so the term ended before the store fell silent: same life, no lock left, no memory."""
    store, jobs, one = scene(watch, serve, libraries, 3)
    store.pause()
    ends = time.monotonic() + 1.2 * LOCK_MS / 1000
    until(lambda: time.monotonic() > ends, SOON)
    store.resume()
    one.restart()
    until(lambda: one.look() and one.why, SOON, "it answers again")
    assert one.why == [RedisPauseTrigger.SILENT]
    assert not store.client.keys(f"{jobs.base}:*:lock")
    one.look()
    assert (jobs.counts()["active"], one.acts) == (3, 0)
    one.restart()
    assert one.look().finds, "they are found, and left alone"
    assert (jobs.counts()["active"], one.why) == (3, [RedisPauseTrigger.SILENT])


def test_a_restart_that_lost_the_locks_alone_holds_and_lets_go_by_itself_in_the_end(
    watch: Watch, serve: Callable[..., Store], libraries: Fleet
) -> None:
    store, jobs, one = scene(watch, serve, libraries, JOBS)
    lose_locks(store, jobs.base)
    until(
        lambda: one.look() and set(one.why) >= {RedisPauseTrigger.LOCKS, RedisPauseTrigger.RUN}, SOON, "it is noticed"
    )
    for _ in range(3):
        one.look()
    assert (jobs.counts()["active"], one.acts) == (JOBS, 0)
    one.pass_by(PATIENCE)
    until(lambda: one.look() and jobs.counts()["waiting"] == JOBS, SOON, "long enough without a lock")


def test_a_scheduler_that_begins_after_the_restart_knows_of_it(
    watch: Watch, serve: Callable[..., Store], libraries: Fleet
) -> None:
    """Nobody has seen the locks go: what is remembered is the run id of before."""
    store, jobs, one = scene(watch, serve, libraries, JOBS)
    lose_locks(store, jobs.base)
    one.restart()
    until(
        lambda: one.look() and set(one.why) >= {RedisPauseTrigger.LOCKS, RedisPauseTrigger.RUN}, SOON, "it is noticed"
    )
    assert (jobs.counts()["active"], one.acts) == (JOBS, 0)


def test_a_restart_that_lost_everything_holds_for_two_lock_lengths(watch: Watch, serve: Callable[..., Store]) -> None:
    store = serve()
    active(store, MAIL.base, *IDS)
    held_jobs(store, MAIL, IDS, ttl=LENGTH)
    one = watch(store)
    one.settle()
    store.stop()
    store.start()
    active(store, MAIL.base, "new")
    until(lambda: one.look() and RedisPauseTrigger.RUN in one.why, SOON, "it is noticed")
    assert lasts(one) >= LOCK_LENGTHS * LENGTH
    one.look()
    assert store.client.lrange(f"{MAIL.base}:active", 0, -1) == [b"new"]
    one.pass_by(lasts(one))
    until(lambda: one.look() and not store.client.llen(f"{MAIL.base}:active"), SOON, "it went by itself")


def test_a_slow_store_is_only_slow(watch: Watch, valkey: Store) -> None:
    active(valkey, MAIL.base, *IDS)
    held_jobs(valkey, MAIL, IDS)
    with Proxy(valkey.port) as proxy:
        one = watch(proxy.url)
        one.settle()
        proxy.delay(0.05)
        for _ in range(3):
            assert one.look().finds == ()
        assert one.why == []
    assert valkey.client.llen(f"{MAIL.base}:active") == JOBS


def test_a_store_that_does_not_answer_is_not_acted_on_and_says_so(watch: Watch, serve: Callable[..., Store]) -> None:
    store = serve()
    active(store, MAIL.base, "1")
    held_jobs(store, MAIL, ["1"])
    one = watch(store)
    one.settle()
    holding = one.crew._pause_guard.holding
    assert holding("main") == ()
    store.pause()
    (said,) = holding("main")
    assert said.startswith("main does not answer: ")
    until(lambda: "cannot be read" in " ".join(one.look().faults), SOON)
    store.resume()
    (said,) = holding("main")
    assert said.startswith("The last check of main failed: ")
    until(lambda: one.look() and not any("failed" in said for said in holding("main")), SOON, "a look succeeds")


def test_a_fail_over_that_lost_the_locks_requeues_nothing(watch: Watch, sentinel: Sentinel) -> None:
    active(sentinel.master, MAIL.base, *IDS)
    held_jobs(sentinel.master, MAIL, IDS)
    one = watch(sentinel.url)
    one.settle()
    until(lambda: sentinel.replica.client.llen(f"{MAIL.base}:active") == JOBS, SOON, "it is replicated")
    sentinel.fail_over()
    sentinel.client.delete(*sentinel.client.keys(f"{MAIL.base}:*:lock"))
    until(
        lambda: one.look() and set(one.why) >= {RedisPauseTrigger.LOCKS, RedisPauseTrigger.RUN}, SOON, "it is noticed"
    )
    for _ in range(3):
        one.look()
    assert (sentinel.client.llen(f"{MAIL.base}:active"), one.acts) == (JOBS, 0)


def test_a_fail_over_between_a_look_and_the_act_holds_the_act(watch: Watch, sentinel: Sentinel) -> None:
    """Whoever is about to act asks the store itself once more."""
    active(sentinel.master, MAIL.base, "1")
    held_jobs(sentinel.master, MAIL, ["1"])
    one = watch(sentinel.url)
    one.settle()
    holding = one.crew._pause_guard.holding
    assert holding("main") == ()
    sentinel.fail_over()
    (said,) = until(lambda: (words := holding("main")) and "run id changed" in words[0] and words, SOON)
    assert said.startswith("The store restarted or was replaced: its run id changed.")
    one.pass_by(30 * MINUTE)
    assert holding("main") == ()


def test_one_node_of_a_cluster_that_restarts_holds_the_whole_deployment(watch: Watch, cluster: Cluster) -> None:
    base = "bull:{one}"
    cluster.client.hset(f"{base}:meta", "version", "bullmq:5.81.5")
    for id in IDS:
        cluster.client.hset(f"{base}:{id}", mapping={"name": "mail", "data": "{}", "timestamp": 1})
        cluster.client.lpush(f"{base}:active", id)
        cluster.client.set(f"{base}:{id}:lock", "w:1", px=600_000)
    one = watch(cluster.url)
    one.settle()
    home = int(cluster.client.cluster_keyslot(base)) * 3 // 16_384
    other = cluster.nodes[(home + 1) % 3]
    other.stop()
    other.start()
    until(lambda: one.look() and RedisPauseTrigger.RUN in one.why, SOON, "it is noticed")
    assert cluster.client.llen(f"{base}:active") == JOBS
