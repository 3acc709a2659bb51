"""Copies of n8n's executions at risk, and the history of those that were lost, on a yard whose workers are killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery import shared_clock
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import DAY, HOUR
from recovery.models import ExecutionCopy, LostExecution
from recovery.n8n import copy_store as copies
from recovery.n8n import lost_executions
from recovery.scanners.n8n.execution_copies import ExecutionCopyWatch
from recovery.stores import registry
from tests.support.n8n.n8n_mending import KEPT, OVERWRITTEN, Mending, mending
from tests.support.n8n.n8n_yard import Run, Yard
from tests.support.stores.stores import Store
from tests.support.stores.table_bench import Postgresql
from tests.support.waiting import until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.node]


@pytest.fixture
def begin(
    yard: Yard, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Mending]]:
    contexts = []

    def begin(more: str = "", **options: str) -> Mending:
        context = mending(yard, state_store, tmp_path, monkeypatch, more=more, **options)
        contexts.append(context)
        return context.__enter__()

    yield begin
    for context in contexts:
        context.__exit__(None, None, None)


@pytest.fixture
def reader(postgresql: Postgresql) -> Iterator[str]:
    """The URL of a user without any right; gone afterwards."""
    postgresql.run("CREATE ROLE reader LOGIN")
    postgresql.run("REVOKE ALL ON SCHEMA public FROM PUBLIC")
    yield postgresql.url.replace("unstall@", "reader@")
    postgresql.run("DROP OWNED BY reader")
    postgresql.run("DROP ROLE reader")


def look(here: Mending, *, later: int = 0) -> list[LostExecutionRecord]:
    """One look, as if `later` ms had passed; the history after it."""
    snapshot = here.watch.snapshot
    ExecutionCopyWatch(registry.registry(), lambda: snapshot).run(shared_clock.now() + later)
    return lost_executions.newest()


def lost(here: Mending, data: str = KEPT) -> Run:
    """A running execution whose only worker was killed, and what n8n has kept of it."""
    run = here.lost()
    here.keeps(run.execution, data)
    return run


def held(here: Mending) -> Run:
    """A running execution whose worker renews its lock in good time, however busy this machine is."""
    run = here.yard.begin()
    here.yard.work(lockDuration=120_000, lockRenewTime=5_000)
    until(lambda: here.client.exists(f"bull:jobs:{run.job}:lock"), what="a worker holds the job")
    here.yard.started(run)
    here.keeps(run.execution)
    return run


def overwritten(here: Mending, run: Run) -> None:
    """As n8n 2 leaves it: the job is gone, the row an error, and nothing is left that could run."""
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    here.yard.ended(run, "error")
    here.keeps(run.execution, OVERWRITTEN)


def test_what_is_at_risk_is_copied_and_cannot_be_read_in_the_database(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here, KEPT.replace('"node"', '"name of a customer"'))
    (loss,) = look(here)
    assert (loss.execution, loss.outcome, loss.verdict) == (
        run.execution,
        LostExecutionOutcome.AT_RISK,
        VerdictKind.ABANDONED,
    )
    assert (loss.title, loss.is_proven, loss.has_copy, loss.copy_trouble) == ("Invoices", True, True, "")
    assert "name of a customer" in (copies.load_copy(loss) or "")
    assert b"customer" not in bytes(ExecutionCopy.objects.get().data)


def test_what_a_worker_holds_is_not_copied(begin: Callable[..., Mending]) -> None:
    here = begin()
    held(here)
    here.watch.discover()
    here.watch.look()
    assert look(here) == []


def test_it_is_copied_once(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    (first,) = look(here)
    here.keeps(run.execution, OVERWRITTEN)
    (second,) = look(here)
    assert second == first
    assert copies.load_copy(second) == KEPT


@pytest.mark.parametrize("status", ["success", "canceled", "waiting"])
def test_what_ended_without_a_loss_is_forgotten_with_its_copy(begin: Callable[..., Mending], status: str) -> None:
    here = begin()
    run = lost(here)
    look(here)
    here.yard.ended(run, status)
    assert look(here) == []
    assert not ExecutionCopy.objects.exists()


def test_what_n8n_has_overwritten_was_lost_and_its_copy_stays(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    overwritten(here, run)
    (loss,) = look(here)
    assert (loss.outcome, loss.has_copy) == (LostExecutionOutcome.LOST, True)
    assert loss.ended_at is not None
    assert copies.load_copy(loss) == KEPT


def test_an_error_that_leaves_something_to_retry_is_no_loss(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    here.yard.ended(run, "error")
    assert look(here) == []


def test_one_that_a_frozen_worker_ended_after_all_was_not_lost(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    overwritten(here, run)
    look(here)
    here.yard.ended(run, "success")
    assert look(here) == []


@pytest.fixture
def watch(begin: Callable[..., Mending]) -> tuple[Mending, ExecutionCopyWatch]:
    """The watch of a leader that has looked at a held job once."""
    here = begin()
    run = held(here)
    here.watch.discover()
    here.watch.look()
    watch = ExecutionCopyWatch(registry.registry(), lambda: here.watch.snapshot)
    watch.run(shared_clock.now())
    assert lost_executions.newest() == []
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    return here, watch


def test_one_that_a_stalled_check_took_between_two_looks_is_copied_and_not_proven(
    watch: tuple[Mending, ExecutionCopyWatch],
) -> None:
    watch[1].run(shared_clock.now())
    (loss,) = lost_executions.newest()
    assert (loss.outcome, loss.has_copy, loss.is_proven) == (LostExecutionOutcome.AT_RISK, True, False)


def test_one_that_its_worker_has_ended_between_two_looks_is_no_news(
    watch: tuple[Mending, ExecutionCopyWatch],
) -> None:
    here, one = watch
    here.yard.update("1", status="success", finished=True)
    one.run(shared_clock.now())
    assert lost_executions.newest() == []


def test_one_that_n8n_deleted_was_lost_for_good(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    here.yard.delete(run.execution)
    (loss,) = look(here)
    assert (loss.outcome, loss.has_copy, loss.copy_trouble) == (
        LostExecutionOutcome.LOST,
        False,
        "n8n has deleted the execution.",
    )


def test_while_its_job_is_gone_and_n8n_waits_it_stays_at_risk(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    (loss,) = look(here)
    assert (loss.outcome, loss.has_copy) == (LostExecutionOutcome.AT_RISK, True)
    assert loss.unheld_at is not None


def test_a_job_that_was_seen_without_its_lock_and_is_gone_had_no_worker(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    LostExecution.objects.update(verdict="unlocked", proven_at=None)
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    (loss,) = look(here, later=60_000)
    assert loss.is_proven


def test_a_job_whose_lock_was_only_late_and_is_gone_proves_nothing(begin: Callable[..., Mending]) -> None:
    """Redis may have been flushed, and its worker runs on."""
    here = begin()
    run = lost(here)
    look(here)
    LostExecution.objects.update(verdict="late", proven_at=None)
    here.client.delete("bull:jobs:active", f"bull:jobs:{run.job}")
    (loss,) = look(here, later=60_000)
    assert (loss.is_proven, loss.outcome) == (False, LostExecutionOutcome.AT_RISK)


def test_one_whose_lock_is_renewed_again_is_not_listed_and_keeps_its_copy(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    here.client.set(f"bull:jobs:{run.job}:lock", "somebody", px=60_000)
    worker = here.yard.work()
    until(lambda: here.watch.look().checked_at and _workers(here) > 0, what="the snapshot has a worker")
    assert look(here) == []
    assert ExecutionCopy.objects.count() == 1
    worker.kill()
    here.client.delete(f"bull:jobs:{run.job}:lock")
    here.proven(run)
    (loss,) = look(here)
    assert (loss.outcome, loss.is_proven, loss.has_copy) == (LostExecutionOutcome.AT_RISK, True, True)


def test_one_that_was_retried_in_n8n_is_told_so(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    overwritten(here, run)
    look(here)
    again = here.yard.execution("running", mode="retry")
    here.yard.update(again, retryOf=run.execution)
    (loss,) = look(here)
    assert (loss.outcome, loss.retried_as, loss.has_copy) == (LostExecutionOutcome.RETRIED, again, False)


def test_one_that_is_too_large_has_no_copy_and_says_why(begin: Callable[..., Mending]) -> None:
    here = begin("[n8n.copies]\nmegabytes_each = 0.1")
    lost(here, KEPT.replace('"node"', f'"{"x" * 200_000}"'))
    (loss,) = look(here)
    assert not loss.has_copy
    assert "195 KiB" in loss.copy_trouble


def test_copies_can_be_turned_off_and_the_history_stays(begin: Callable[..., Mending]) -> None:
    here = begin("[n8n.copies]\nkeep = false")
    lost(here)
    (loss,) = look(here)
    assert not loss.has_copy
    assert "turned off" in loss.copy_trouble


def test_without_the_right_to_read_the_data_there_is_no_copy_and_it_is_said(
    begin: Callable[..., Mending], postgresql: Postgresql, reader: str
) -> None:
    for statement in ("USAGE ON SCHEMA public", "SELECT ON execution_entity", "SELECT ON workflow_entity"):
        postgresql.run(f"GRANT {statement} TO reader")
    here = begin(url=reader)
    lost(here)
    (loss,) = look(here)
    assert not loss.has_copy
    assert "GRANT SELECT" in loss.copy_trouble


def test_the_oldest_copy_of_what_is_lost_makes_room_and_none_at_risk(begin: Callable[..., Mending]) -> None:
    here = begin("[n8n.copies]\nexecutions = 1")
    first = lost(here)
    look(here)
    overwritten(here, first)
    look(here)
    second, third = (_at_risk(here, job) for job in ("901", "902"))
    by_execution = {loss.execution: loss for loss in look(here)}
    assert "make room" in by_execution[first.execution].copy_trouble
    assert sorted(by_execution[id].has_copy for id in (second, third)) == [False, True]
    assert any("take all of the room" in by_execution[id].copy_trouble for id in (second, third))


def test_a_copy_is_deleted_when_its_days_are_over_and_the_history_stays(begin: Callable[..., Mending]) -> None:
    here = begin("[n8n.copies]\ndays = 2")
    run = lost(here)
    look(here)
    overwritten(here, run)
    look(here)
    (loss,) = look(here, later=2 * DAY - HOUR)
    assert loss.has_copy
    (loss,) = look(here, later=2 * DAY + HOUR)
    assert not loss.has_copy
    assert "after 2 days" in loss.copy_trouble


def test_the_history_ends_after_ninety_days(begin: Callable[..., Mending]) -> None:
    here = begin()
    run = lost(here)
    look(here)
    overwritten(here, run)
    look(here)
    assert look(here, later=91 * DAY) == []
    assert not LostExecution.objects.exists()


def test_a_copy_in_the_row_of_another_execution_is_not_used(begin: Callable[..., Mending]) -> None:
    here = begin()
    lost(here)
    (loss,) = look(here)
    LostExecution.objects.update(execution="4711")
    (moved,) = lost_executions.newest()
    assert moved.number == loss.number
    assert copies.load_copy(moved) is None


def test_one_claim_at_a_time(begin: Callable[..., Mending]) -> None:
    here = begin()
    lost(here)
    (loss,) = look(here)
    assert [copies.claim(loss, 1), copies.claim(loss, 2)] == [True, False]
    copies.release(loss.number)
    assert copies.claim(loss, 3)


def _workers(here: Mending) -> int:
    return sum(worker.queue.base == "bull:jobs" for worker in here.watch.snapshot.workers)


def _at_risk(here: Mending, job: str) -> str:
    """Another job that is active without a lock; its execution."""
    execution = here.yard.execution("running", ago=30)
    here.keeps(execution)
    data = f'{{"executionId":"{execution}","workflowId":"wfInvoices000001"}}'
    fields = {"data": data, "timestamp": 1, "processedOn": 2, "name": "job", "opts": '{"attempts":1}'}
    here.client.hset(f"bull:jobs:{job}", mapping=fields)
    here.client.lpush("bull:jobs:active", job)
    return execution
