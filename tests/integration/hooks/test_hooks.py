"""Functions of the application that hear of lost and recovered jobs, called by the scheduler's own scanner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import OperationalError

from recovery.actions import runner
from recovery.domain.actions.types import Action, Outcome, ScriptOutcome
from recovery.domain.stuck.types import VerdictKind
from recovery.hooks import dispatcher as scanner
from recovery.hooks import outbox
from recovery.hooks.dispatcher import AGAIN, GIVE_UP, HookDispatcher
from recovery.models import HookCall, Incident
from recovery.reads.queues import job_lists
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores import registry
from tests.support import application
from tests.support.acting import Bench, set_up
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _nothing_heard() -> Iterator[None]:
    application.heard.clear()
    application.released.clear()
    yield
    application.released.set()


@pytest.fixture
def bench(valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with set_up(valkey, state_store, tmp_path, monkeypatch) as made:
        listen(tmp_path, "hear")
        yield made


def listen(directory: Path, function: str, *, on: str = '["lost", "recovered"]', queue: str = "bull:mail") -> None:
    """A hook in the file, read anew."""
    path = directory / "unstall.toml"
    before = path.read_text().partition("[[hooks]]")[0]
    path.write_text(
        f'{before}\n[[hooks]]\nname = "app"\nqueue = "{queue}"\non = {on}\n'
        f'call = "tests.support.application:{function}"\n'
    )
    registry.reset()


def made() -> HookDispatcher:
    return HookDispatcher(registry.registry())


def call(calls: HookDispatcher) -> int:
    return calls.run(now_ms())


def test_a_requeue_is_told_with_the_jobs_data(bench: Bench) -> None:
    bench.orphan("1", data='{"import": 7}')
    (result,) = runner.perform(bench.order(Action.REQUEUE, "1"))
    assert result.outcome is Outcome.DONE
    assert call(made()) == 1
    (told,) = application.heard
    assert (told.event, told.deployment, told.queue, told.job) == ("recovered", "main", "bull:mail", "1")
    assert (told.act, told.state, told.name, told.data) == ("requeue", "waiting", "mail", {"import": 7})
    assert not HookCall.objects.exists()
    assert call(made()) == 0


def test_an_act_that_was_refused_is_told_nobody(bench: Bench) -> None:
    bench.held("1")
    (result,) = runner.perform(bench.order(Action.REQUEUE, "1"))
    assert result.outcome is Outcome.REFUSED
    assert not HookCall.objects.exists()


def test_what_the_script_refused_is_told_nobody(bench: Bench) -> None:
    bench.orphan("1", "2")
    order = bench.order(Action.REQUEUE, "1", "2")
    heard = outbox.prepare_calls(registry.registry().config, order, job_lists.locate(bench.ref, None), order.jobs)
    outbox.enqueue_calls(
        heard,
        order,
        [ScriptOutcome("1", Outcome.REFUSED), ScriptOutcome("2", Outcome.DONE), ScriptOutcome("3", Outcome.UNKNOWN)],
    )
    assert list(HookCall.objects.values_list("job", flat=True)) == ["2"]


def test_a_job_that_is_still_locked_is_not_lost_yet(bench: Bench) -> None:
    bench.held("1")
    watch = OrphanWatch(registry.registry(), bench.look)
    assert [line.verdict.kind for line in watch.run(now_ms()).rows] == [VerdictKind.WORKER_LOST]
    assert Incident.objects.exists()
    assert not HookCall.objects.exists()
    bench.client.delete("bull:mail:1:lock")
    watch.run(now_ms())
    assert HookCall.objects.get().event == "lost"


def test_a_retry_is_no_recovery(bench: Bench) -> None:
    bench.failed("1")
    runner.perform(bench.order(Action.RETRY, "1"))
    assert not HookCall.objects.exists()


def test_a_lock_that_is_released_is_a_job_that_is_lost(bench: Bench) -> None:
    bench.held("1", ttl=None)
    (result,) = runner.perform(bench.order(Action.RELEASE, "1"))
    assert result.outcome is Outcome.DONE
    call(made())
    assert [(told.event, told.act, told.state) for told in application.heard] == [("lost", "release", "active")]


def test_released_and_requeued_in_one_step_is_recovered(bench: Bench) -> None:
    bench.held("1", ttl=None)
    runner.perform(bench.order(Action.RELEASE, "1", requeue=True))
    call(made())
    assert [(told.event, told.state) for told in application.heard] == [("recovered", "waiting")]


def test_the_watch_tells_of_a_job_that_is_lost_once_and_of_its_rescue_by_the_library(bench: Bench) -> None:
    bench.orphan("1")
    watch = OrphanWatch(registry.registry(), bench.look)
    calls = made()
    for _ in range(3):
        watch.run(now_ms())
    call(calls)
    assert [told.event for told in application.heard] == ["lost"]
    bench.client.lrem("bull:mail:active", 1, "1")
    bench.client.hincrby("bull:mail:1", "stc", 1)
    bench.client.rpush("bull:mail:wait", "1")
    watch.run(now_ms())
    call(calls)
    assert [(told.event, told.act) for told in application.heard] == [("lost", ""), ("recovered", "")]


def test_an_act_is_told_once_though_it_closes_the_incident_too(bench: Bench) -> None:
    bench.orphan("1")
    watch = OrphanWatch(registry.registry(), bench.look)
    watch.run(now_ms())
    runner.perform(bench.order(Action.REQUEUE, "1"))
    watch.run(now_ms())
    watch.run(now_ms())
    call(made())
    assert [told.event for told in application.heard] == ["lost", "recovered"]


def test_a_hook_that_listens_to_one_event_hears_no_other(bench: Bench, tmp_path: Path) -> None:
    listen(tmp_path, "hear", on='["recovered"]')
    bench.orphan("1")
    OrphanWatch(registry.registry(), bench.look).run(now_ms())
    assert not HookCall.objects.exists()


def test_another_queue_is_another_hooks_business(bench: Bench, tmp_path: Path) -> None:
    listen(tmp_path, "hear", queue="main/bull:other")
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert not HookCall.objects.exists()


def test_a_function_that_raises_is_tried_again_later_and_its_trouble_holds_no_secret(
    bench: Bench, tmp_path: Path
) -> None:
    listen(tmp_path, "refuse")
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    calls, now = made(), now_ms()
    assert calls.run(now) == 0
    held = HookCall.objects.get()
    assert (held.tries, held.due_at) == (1, now + AGAIN)
    assert "ValueError" in held.trouble
    assert "hunter2" not in held.trouble
    assert (calls.run(now + 1), calls.again(now + 1)) == (0, 0)
    assert calls.run(now + 2 * AGAIN) == 0  # only with the next stale check
    assert len(application.heard) == 1
    assert calls.again(now + AGAIN) == 0
    assert HookCall.objects.get().tries == 2
    listen(tmp_path, "hear")
    assert made().again(now + 2 * AGAIN) == 1
    assert not HookCall.objects.exists()


@pytest.mark.parametrize("function", ["missing", "nothing", "leave"])
def test_a_function_that_cannot_be_called_or_ends_the_process_breaks_nothing(
    bench: Bench, tmp_path: Path, function: str
) -> None:
    listen(tmp_path, function)
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert call(made()) == 0
    assert HookCall.objects.get().trouble


def test_a_function_that_hangs_delays_only_itself(bench: Bench, tmp_path: Path) -> None:
    listen(tmp_path, "hang")
    with (tmp_path / "unstall.toml").open("a") as file:
        file.write('[[hooks]]\nname = "other"\nqueue = "bull:mail"\ncall = "tests.support.application:hear"\n')
    registry.reset()
    bench.orphan("1", "2")
    calls = HookDispatcher(registry.registry(), patience=0.2)
    runner.perform(bench.order(Action.REQUEUE, "1", "2"))
    call(calls)
    assert {(told.job) for told in application.heard} == {"1", "2"}
    left = list(HookCall.objects.order_by("pk").values_list("hook", "tries"))
    assert left == [("app", 1), ("app", 0)]  # one hangs, one waits for it
    assert call(calls) == 0
    application.released.set()
    until(lambda: call(calls), 30)
    assert list(HookCall.objects.values_list("hook", "tries")) == [("app", 1)]


def test_however_many_wait_for_one_that_hangs_the_others_are_called(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scanner, "AT_ONCE", 2)
    listen(tmp_path, "hang")
    with (tmp_path / "unstall.toml").open("a") as file:
        file.write('[[hooks]]\nname = "other"\nqueue = "bull:mail"\ncall = "tests.support.application:hear"\n')
    registry.reset()
    bench.orphan("1", "2", "3", "4")
    calls = HookDispatcher(registry.registry(), patience=0.2)
    runner.perform(bench.order(Action.REQUEUE, "1", "2", "3", "4"))
    for _ in range(6):
        call(calls)
    assert list(HookCall.objects.values_list("hook", flat=True)) == ["app"] * 4


def test_a_call_that_failed_for_days_is_given_up(bench: Bench, tmp_path: Path) -> None:
    listen(tmp_path, "refuse")
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    calls, now = made(), now_ms()
    calls.run(now)
    calls.again(now + GIVE_UP + AGAIN)
    assert not HookCall.objects.exists()


def test_a_hook_that_is_configured_no_more_is_forgotten(bench: Bench, tmp_path: Path) -> None:
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    HookCall.objects.update(hook="old")
    call(made())
    assert not HookCall.objects.exists()


def test_a_store_that_is_away_keeps_the_calls_for_later(bench: Bench, valkey: Store) -> None:
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    calls, now = made(), now_ms()
    valkey.stop()
    try:
        assert calls.run(now) == 0
    finally:
        valkey.start()
    assert HookCall.objects.get().tries == 1


def test_a_database_that_takes_no_call_costs_no_act(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OperationalError("the disk is full")

    monkeypatch.setattr(HookCall.objects, "bulk_create", fail)
    bench.orphan("1", "2")
    (result,) = runner.perform(bench.order(Action.REQUEUE, "1"))
    assert result.outcome is Outcome.DONE
    OrphanWatch(registry.registry(), bench.look).run(now_ms())


def test_without_leave_nothing_is_called(bench: Bench) -> None:
    bench.orphan("1")
    runner.perform(bench.order(Action.REQUEUE, "1"))
    assert HookDispatcher(registry.registry(), lambda: False).run(now_ms()) == 0
    assert HookCall.objects.get().tries == 0


def test_five_hundred_calls_are_made_in_bounded_looks(bench: Bench) -> None:
    ids = [str(number) for number in range(500)]
    bench.orphan(*ids)
    for start in range(0, 500, 100):
        runner.perform(bench.order(Action.REQUEUE, *ids[start : start + 100]))
    calls = made()
    until(lambda: call(calls) <= 200 and not HookCall.objects.exists(), 60)
    assert len(application.heard) == 500
