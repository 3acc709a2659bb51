"""The Redis pause beside real workers: one that dies is no sign of a bad store, many that live without locks are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import OperationalError

from recovery.actions.safety_limits import auto_retry_limits
from recovery.backends.redis_common.active_jobs import NO_KEY, ActiveWindow
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import QueueSample
from recovery.domain.safety_limits.redis_pause import RedisPauseTrigger
from recovery.domain.stuck.context import VerdictContext, WorkerChange
from recovery.domain.time_units import HOUR, SECOND
from recovery.models import BrakeState
from recovery.reads.queues import outages
from recovery.reads.safety_limits import paused_deployments
from recovery.reads.safety_limits.queries import redis_pauses
from recovery.scanners.collect.outage_tracker import OutageTracker
from recovery.scanners.orphan_watch.lost_locks import LostLockCounts, count_lost_locks
from recovery.scanners.orphan_watch.queue_state import CandidateJob, QueueState
from recovery.scanners.orphan_watch.redis_identity import RedisIdentity, read_redis_identity
from recovery.scanners.orphan_watch.redis_pause import RedisPauseGuard
from recovery.stores.state import state_keys
from tests.support.acting import ADMIN, now_ms
from tests.support.processes.fleet import Fleet
from tests.support.stores.stores import Store
from tests.support.stuck.armed import Armed, armed, held_jobs
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watch_bench import active
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(180)]

SOON = 60.0  # seconds, on a machine that has other things to do
JOBS = 25
IDS = [str(number) for number in range(1, JOBS + 1)]
MAIL = QueueRef("main", "bull:mail")
# Its own check is what proves a job of Bull lost: two looks so far apart. Where others live, it may be quicker than we.
LOCK = {"lockDuration": 6_000, "stalledInterval": 2_000, "maxStalledCount": 5}


@pytest.fixture
def one(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Armed]:
    with armed(tmp_path, state_store, valkey, monkeypatch) as armed_watch:
        yield armed_watch


@pytest.mark.parametrize(("generation", "others"), [("bullmq6", 0), ("bull4", 1)])
def test_a_worker_that_dies_with_many_jobs_is_no_sign_of_a_bad_store(
    one: Armed, valkey: Store, libraries: Fleet, generation: str, others: int
) -> None:
    """Named or not, alone or not: its connection is gone, and the store is the same."""
    jobs = libraries[generation].queue(valkey)
    jobs.add_many(JOBS)
    named = {"name": "dying"} if generation == "bullmq6" else {}
    dying = jobs.work("hang", apart=True, concurrency=JOBS, **LOCK, **named)
    until(lambda: jobs.counts()["active"] == JOBS, SOON)
    jobs.pause()  # what is put back stays where it can be counted
    for number in range(others):
        jobs.work("hang", apart=True, **LOCK, **(named and {"name": f"alive-{number}"}))
    until(lambda: len(jobs.workers()) == 1 + others, SOON)
    one.settle()
    dying.kill()
    until(lambda: one.look() and not jobs.counts()["active"], SOON, "they are put back to wait")
    assert RedisPauseTrigger.LOCKS not in [hold.why for hold in one.pause.holds]


def test_many_that_lose_their_locks_while_their_workers_are_connected_hold_everything(
    one: Armed, valkey: Store, libraries: Fleet
) -> None:
    jobs = libraries["bullmq5"].queue(valkey)
    jobs.add_many(JOBS)
    jobs.work("hang", apart=True, concurrency=JOBS, lockDuration=600_000, stalledInterval=3_600_000)
    until(lambda: jobs.counts()["active"] == JOBS, SOON)
    other = QueueRef("main", "bull:other")
    active(valkey, other.base, "1", processedOn=now_ms())
    held_jobs(valkey, other, ["1"])
    one.settle()
    valkey.client.delete(*valkey.client.keys(f"{jobs.base}:*:lock"), f"{other.base}:1:lock")
    one.look()
    assert one.why == [RedisPauseTrigger.LOCKS]
    # The other job has nobody who could have renewed it.
    assert "25 of 26 active jobs lost their locks between two checks" in one.pause.words(now_ms())[0]
    assert (jobs.counts()["active"], valkey.client.llen(f"{other.base}:active"), one.acts) == (JOBS, 1, 0)


def test_fewer_than_twenty_or_a_quarter_are_not_enough(one: Armed, valkey: Store) -> None:
    active(valkey, MAIL.base, *map(str, range(100)), processedOn=now_ms())
    held_jobs(valkey, MAIL, [str(number) for number in range(100)])
    one.settle()
    valkey.client.delete(*(f"{MAIL.base}:{number}:lock" for number in range(25)))
    one.look()
    assert one.why == []
    assert valkey.client.llen(f"{MAIL.base}:active") == 75


# -- what counts as lost, and as gone


def post(*ids: str, worker: str = "w1") -> QueueState:
    """A queue whose jobs had locks, and have none now."""
    found = [CandidateJob(id.encode(), ActiveWindow(MAIL), rank, NO_KEY) for rank, id in enumerate(ids)]
    rows = {id: JobRow(MAIL.job(id), JobState.ACTIVE, worker=worker) for id in ids}
    made = QueueState(MAIL, QueueSample(MAIL, BULLMQ), found=found, rows=rows)
    made.jobs.arrange([one.id for one in found])
    made.jobs.hold()
    made.jobs.learn(range(len(ids)), [NO_KEY] * len(ids), now_ms())
    return made


def around(**known: object) -> VerdictContext:
    return VerdictContext(now_ms(), **({"workers": 1, "names": frozenset(["w2"]), "lock_length": 9_000} | known))  # type: ignore[arg-type] - by name


@pytest.mark.parametrize(
    ("known", "gone"),
    [
        ({}, 2),  # another one is here, and this one is not
        ({"names": frozenset(["w1"])}, 0),
        ({"unnamed": 1}, 0),
        ({"workers": 0, "names": frozenset()}, 2),
        ({"workers": None, "names": frozenset()}, 0),
    ],
)
def test_a_named_holder_is_gone_when_it_is_not_connected(known: dict[str, object], gone: int) -> None:
    counted = count_lost_locks([post("1", "2")], {MAIL: around(**known)}, None)
    assert (counted.active, counted.lost, counted.gone) == (2, 2, gone)


@pytest.mark.parametrize(
    ("left", "came", "gone"), [(1, 0, 2), (1, 1, 0), (0, 0, 0), (2, 1, 2)], ids=["left", "renewed", "none", "fewer"]
)
def test_one_without_a_name_may_be_gone_when_more_went_than_came(left: int, came: int, gone: int) -> None:
    lately = WorkerChange("", now_ms() - 5_000)
    known = around(names=frozenset(), unnamed=1, left=(lately,) * left, came=(lately,) * came)
    assert count_lost_locks([post("1", "2", worker="")], {MAIL: known}, None).gone == gone


def test_who_went_long_before_the_locks_could_run_out_is_no_reason() -> None:
    long_ago = WorkerChange("", now_ms() - 60_000)
    known = around(names=frozenset(), unnamed=1, left=(long_ago,))
    assert count_lost_locks([post("1", "2", worker="")], {MAIL: known}, None).gone == 0


# -- what it says of itself


def test_the_store_is_asked_who_it_is_in_one_round_trip(one: Armed, valkey: Store) -> None:
    told = read_redis_identity(one.registry.wire("main"))
    info = valkey.client.info("server")
    assert (told.run_id, told.role) == (info["run_id"], "master")
    assert told.uptime is not None
    assert abs(told.uptime - int(info["uptime_in_seconds"]) * 1000) <= 1_000


def test_open_pages_hear_of_a_hold_and_of_its_end(one: Armed, state_store: Store) -> None:
    guard = RedisPauseGuard(one.registry)
    guard.seen("main", RedisIdentity("a", "master"), LostLockCounts(active=100))
    assert state_store.client.get("unstall:held") is None
    guard.seen("main", RedisIdentity("b", "master"), LostLockCounts(active=100))
    assert paused_deployments.decode(state_store.client.get("unstall:held")) == ("main",)
    assert 0 < state_store.client.ttl("unstall:held") <= 60
    one.pass_by(3_600_000)
    guard.seen("main", RedisIdentity("b", "master"), LostLockCounts(active=100))
    assert state_store.client.get("unstall:held") is None


def test_an_unchanged_store_costs_no_write(one: Armed) -> None:
    guard = RedisPauseGuard(one.registry)
    guard.seen("main", RedisIdentity("a", "master", 600_000), LostLockCounts(active=100, lock_length=29_950))
    (before,) = BrakeState.objects.values_list("version", "at")
    guard.seen("main", RedisIdentity("a", "master", 605_000), LostLockCounts(active=90, lost=3, lock_length=29_400))
    assert list(BrakeState.objects.values_list("version", "at")) == [before]


@pytest.mark.parametrize(
    ("ago", "why"), [(14 * SECOND, []), (HOUR, [RedisPauseTrigger.SILENT])], ids=["taken over", "stopped"]
)
def test_whoever_begins_holds_when_nobody_looked_for_half_a_lock(
    one: Armed, state_store: Store, ago: int, why: list[RedisPauseTrigger]
) -> None:
    one.settle()
    state_store.client.pexpire(state_keys.last_answered("main"), outages.KEEP - ago)
    one.restart()
    one.look()
    assert one.why == why
    auto_retry_limits.release(ADMIN, "store", "main", "", "", "nothing was wrong")
    one.look()
    assert one.why == [], "what a person let go is not engaged again by what was known then"


def test_a_silence_that_the_state_store_cannot_be_told_is_told_later(one: Armed, state_store: Store) -> None:
    seconds = 0.0
    answers = OutageTracker(lambda: seconds)
    client = state_store.client
    answers.came("main")
    answers.tell(client)
    answers.missed("main")
    seconds += 40
    client.pexpire(state_keys.last_answered("main"), outages.KEEP - 41 * SECOND)
    answers.came("main")
    assert answers.owes
    seconds += 2
    answers.came("main")
    answers.tell(client)
    assert not answers.owes
    assert outages.last(client, "main").lasted == 40 * SECOND
    answers.missed("main")
    seconds += 3
    answers.came("main")
    answers.tell(client)
    assert outages.last(client, "main").lasted == 40 * SECOND, "a short one that follows hides no long one"


def test_a_safety_limit_that_cannot_be_read_holds(one: Armed) -> None:
    one.settle()
    BrakeState.objects.update(state="{")
    said = one.crew._pause_guard.holding("main")[0]
    assert re.match(
        r"The recorded state of the store cannot be read\. Auto-recovery stays paused for 1[45] min more or", said
    )
    assert redis_pauses(now_ms())[0].is_holding


def test_a_database_that_is_away_holds(one: Armed, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> int:
        raise OperationalError("no route to db.internal")

    one.settle()
    monkeypatch.setattr("recovery.stores.sql.database_clock.now", away)
    assert one.crew._pause_guard.holding("main") == (
        "The safety limits cannot be stored, so nothing was changed: OperationalError.",
    )
    assert "OperationalError" in " ".join(one.look().faults)


def test_what_is_no_redis_has_no_safety_limit(one: Armed) -> None:
    assert one.crew._pause_guard.holding("a-database") == ()
