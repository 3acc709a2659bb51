"""Bulk runs: ordered, gathered, done in chunks, and told job by job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.actions import runner
from recovery.actions.audit import audit_log
from recovery.actions.bulk import bulk_runs
from recovery.actions.bulk.bulk_runs import BulkRunner, BulkSelection, BulkThrottle
from recovery.domain.actions.types import Action, ActionCommand
from recovery.domain.jobs import JobState
from recovery.domain.stuck.types import VerdictKind
from recovery.errors import BadOrder, Forbidden, NotRecorded, Unsupported
from recovery.models import AuditEntry, BulkItem, BulkRun
from recovery.reads.audit import queries as book
from recovery.reads.bulk import queries as progress_of
from recovery.stores.registry import registry
from tests.support.acting import ADMIN, OPERATOR, Bench, all_of, finish
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db


# -- ordering


def test_an_operator_orders_nothing_in_bulk(bench: Bench) -> None:
    with pytest.raises(Forbidden):
        bulk_runs.order(
            ActionCommand(Action.RETRY, bench.ref, OPERATOR, "why"), BulkSelection(JobState.FAILED, now_ms())
        )
    assert BulkRun.objects.count() == 0


def test_a_wrong_order_is_refused_at_once(bench: Bench) -> None:
    with pytest.raises(BadOrder, match="reason"):
        bulk_runs.order(ActionCommand(Action.RETRY, bench.ref, ADMIN, " "), BulkSelection(JobState.FAILED, now_ms()))
    with pytest.raises(BadOrder, match="give a selection"):
        bulk_runs.order(ActionCommand(Action.RETRY, bench.ref, ADMIN, "why"))
    with pytest.raises(BadOrder, match="runs immediately"):
        bulk_runs.order(ActionCommand(Action.PAUSE, bench.ref, ADMIN, "why"))
    bench.client.hset("bull:mail:meta", "version", "bullmq-pro:7.1.0")
    with pytest.raises(Unsupported):
        bulk_runs.order(ActionCommand(Action.RETRY, bench.ref, ADMIN, "why"), BulkSelection(JobState.FAILED, now_ms()))
    assert BulkRun.objects.count() == 0


def test_who_ordered_it_is_in_the_audit(bench: Bench) -> None:
    run = all_of(bench, Action.RETRY)
    (line,) = book.entries().lines
    assert (line.act, line.actor, line.reason, line.queue) == ("bulk", "ada", "the mail server is back", bench.ref)
    assert book.load_entry(line.number).body["run"] == run.pk


def test_without_an_audit_there_is_no_run(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise NotRecorded("the disk is full")

    monkeypatch.setattr(audit_log, "note", gone)
    with pytest.raises(NotRecorded):
        all_of(bench, Action.RETRY)
    assert BulkRun.objects.count() == 0


# -- doing


def test_five_thousand_failed_jobs_are_retried_in_their_order(bench: Bench, hands: BulkRunner) -> None:
    ids = [str(number) for number in range(5000)]
    bench.failed(*ids)
    bench.failed("later", at=now_ms() + 60_000)
    found = finish(hands, all_of(bench, Action.RETRY))
    assert (found.status, found.total, found.done, found.trouble) == ("ended", 5000, 5000, "")
    assert bench.ids(JobState.FAILED) == ["later"]
    assert bench.ids(JobState.WAITING) == ids[::-1]
    assert AuditEntry.objects.filter(phase="outcome").count() == 10
    assert book.verify().is_sound


def test_all_orphans_are_requeued_and_what_is_held_is_left(bench: Bench, hands: BulkRunner) -> None:
    ids = [str(number) for number in range(250)]
    bench.orphan(*ids)
    bench.held("held")
    bench.look()
    found = finish(hands, all_of(bench, Action.REQUEUE, JobState.ACTIVE, verdict=VerdictKind.ORPHAN))
    assert (found.total, found.done) == (250, 250)
    assert bench.ids(JobState.ACTIVE) == ["held"]


def test_a_list_that_shrinks_under_the_run_is_done_to_its_end(bench: Bench, hands: BulkRunner) -> None:
    """Each window that is requeued moves all that follow, and those that are held stay in between."""
    ids = [str(number) for number in range(1300)]
    for start in range(0, 1300, 650):
        bench.held(f"held-{start}", ttl=3_600_000)
        bench.orphan(*ids[start : start + 650])
    bench.look()
    found = finish(hands, all_of(bench, Action.REQUEUE, JobState.ACTIVE, verdict=VerdictKind.ORPHAN))
    assert (found.status, found.total, found.done) == ("ended", 1300, 1300)
    assert bench.ids(JobState.ACTIVE) == ["held-650", "held-0"]
    assert sorted(bench.ids(JobState.WAITING), key=int) == ids
    assert [row.place for row in progress_of.results(found.id, size=500).rows] == list(range(500))
    assert book.verify().is_sound


def test_jobs_that_the_walk_passed_over_are_done_in_another_one(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those in front leave the list between two windows, so the next one begins too far on."""
    held, ids = [f"held-{number}" for number in range(20)], [str(number) for number in range(600)]
    bench.held(*held, ttl=3_600_000)
    bench.orphan(*ids)
    bench.look()
    real = runner.perform_prechecked

    def leave(*arguments: Any) -> Any:
        results = real(*arguments)
        for id in held:
            bench.client.lrem("bull:mail:active", 1, id)
        return results

    monkeypatch.setattr(runner, "perform_prechecked", leave)
    found = finish(hands, all_of(bench, Action.REQUEUE, JobState.ACTIVE, verdict=VerdictKind.ORPHAN))
    assert (found.status, found.total, found.done) == ("ended", 600, 600)
    assert bench.ids(JobState.ACTIVE) == []


def test_the_jobs_that_were_shown_are_done_and_each_has_its_result(bench: Bench, hands: BulkRunner) -> None:
    bench.orphan("1", "2")
    order = bench.order(Action.REQUEUE, "1", "2", "404")
    bench.client.set("bull:mail:2:lock", "worker:1", px=60_000)
    run = bulk_runs.order(order)
    found = finish(hands, run)
    assert (found.done, found.refused, found.missing, found.settled, found.share) == (1, 1, 1, 3, 1.0)
    rows = progress_of.results(run.pk).rows
    assert [(row.job, row.outcome) for row in rows] == [("1", "done"), ("2", "refused"), ("404", "missing")]
    assert "holds its lock" in rows[1].why
    assert book.entry(rows[0].audit or 0).line.job == "1"
    assert [row.job for row in progress_of.results(run.pk, outcome="refused").rows] == ["2"]


def test_results_come_in_pages(bench: Bench, hands: BulkRunner) -> None:
    bench.failed(*(str(number) for number in range(5)))
    run = all_of(bench, Action.RETRY)
    finish(hands, run)
    first = progress_of.results(run.pk, size=3)
    rest = progress_of.results(run.pk, cursor=first.next, size=3)
    assert [row.job for row in (*first.rows, *rest.rows)] == ["0", "1", "2", "3", "4"]
    assert rest.next == ""


def test_a_big_clean_goes_step_by_step(bench: Bench, hands: BulkRunner) -> None:
    bench.failed(*(str(number) for number in range(1300)))
    order = bench.order(Action.CLEAN, state=JobState.FAILED, limit=1100)
    found = finish(hands, bulk_runs.order(order))
    assert (found.status, found.done) == ("ended", 1100)
    assert len(bench.ids(JobState.FAILED)) == 200
    steps = book.entries(book.AuditFilter(act="clean")).lines
    assert sum(line.count for line in steps) == 1100
    runner.restore(steps[0].number, ADMIN, "too much")
    assert len(bench.ids(JobState.FAILED)) == 200 + steps[0].count


def test_a_drain_of_nothing_ends(bench: Bench, hands: BulkRunner) -> None:
    found = finish(hands, bulk_runs.order(bench.order(Action.DRAIN)))
    assert (found.status, found.done, found.share) == ("ended", 0, 1.0)


def test_a_queue_that_is_gone_ends_the_run_and_says_so(bench: Bench, hands: BulkRunner) -> None:
    bench.failed("1")
    run = all_of(bench, Action.RETRY)
    bench.client.flushall()
    bench.forget()
    found = finish(hands, run)
    assert found.status == "failed"
    assert "no queue" in found.trouble


# -- pace


def test_the_latency_is_asked_on_a_connection_of_its_own(bench: Bench) -> None:
    pace = BulkThrottle(registry().config.deployment("main"))
    try:
        assert 0 < pace.latency() < 1000
    finally:
        pace.close()


def test_progress_tells_rate_and_what_is_left(bench: Bench) -> None:
    run = BulkRun.objects.create(
        created_at=0,
        started_at=1000,
        status="running",
        act="retry",
        deployment="main",
        base="bull:mail",
        actor='{"name": "ada"}',
        reason="x",
        total=100,
        done=40,
    )
    found = progress_of.progress(run.pk, 5000)
    assert (found.rate, found.left_ms, found.share) == (10.0, 6000, 0.4)
    assert progress_of.recent(5000)[0].id == run.pk
    assert BulkItem.objects.count() == 0


def test_replaced_options_do_not_outlive_the_order(bench: Bench) -> None:
    """That orphans were proven is found out anew for each chunk; nobody can order it."""
    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    run = bulk_runs.order(replace(order, options=replace(order.options, is_late=True)))
    assert '"is_late":false' in run.options
