"""The one door: what it does, what is written down, and what becomes of a store that goes away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from django.db import OperationalError

from recovery.actions import execute_jobs, precheck, runner
from recovery.actions.audit import audit_log
from recovery.actions.execute_jobs import ActionCallbacks
from recovery.backends.base import MOVE_CHUNK, Target
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.errors import (
    NotRecorded,
    StoreError,
    Unreachable,
)
from recovery.models import AuditEntry, AuditHead
from recovery.reads.audit import queries as book
from tests.support.acting import OPERATOR, Bench
from tests.support.stuck.samples import BULLMQ

pytestmark = pytest.mark.django_db


def outcomes(results: Sequence[Any]) -> list[Outcome]:
    return [result.outcome for result in results]


# -- it works


def test_an_orphan_goes_back_to_wait_and_the_audit_says_so(bench: Bench) -> None:
    bench.orphan("1")
    bench.look()
    (result,) = runner.perform(bench.order(Action.REQUEUE, "1", actor=OPERATOR))
    assert (result.job, result.outcome, result.audit) == ("1", Outcome.DONE, 2)
    assert bench.ids(JobState.WAITING) == ["1"]
    assert bench.ids(JobState.ACTIVE) == []
    detail = book.entry(1)
    assert (detail.line.actor, detail.line.reason, detail.line.tally) == ("otto", "it hangs", {"done": 1})
    (fate,) = detail.jobs
    assert (fate.before["state"], fate.after["state"], fate.after["stalls"]) == ("active", "waiting", 1)
    assert fate.verdict["kind"] == "abandoned"
    assert book.verify().is_sound


def test_it_works_without_a_scheduler(bench: Bench) -> None:
    """No snapshot: the queue itself is asked."""
    bench.orphan("1")
    assert outcomes(runner.perform(bench.order(Action.REQUEUE, "1"))) == [Outcome.DONE]


def test_a_failed_job_is_retried(bench: Bench) -> None:
    bench.failed("1")
    assert outcomes(runner.perform(bench.order(Action.RETRY, "1"))) == [Outcome.DONE]
    assert bench.ids(JobState.WAITING) == ["1"]


def test_a_delayed_job_is_promoted(bench: Bench) -> None:
    bench.delayed("1")
    assert outcomes(runner.perform(bench.order(Action.PROMOTE, "1"))) == [Outcome.DONE]
    assert bench.ids(JobState.WAITING) == ["1"]


def test_an_orphan_is_failed_here_when_asked_to(bench: Bench) -> None:
    bench.orphan("1")
    order = bench.order(Action.FAIL, "1", directly=True, message="its worker died")
    assert outcomes(runner.perform(order)) == [Outcome.DONE]
    assert bench.ids(JobState.FAILED) == ["1"]


def test_a_queue_is_paused_and_resumed(bench: Bench) -> None:
    assert outcomes(runner.perform(bench.order(Action.PAUSE))) == [Outcome.DONE]
    assert bench.client.hget("bull:mail:meta", "paused") == b"1"
    assert outcomes(runner.perform(bench.order(Action.PAUSE))) == [Outcome.UNCHANGED]
    assert outcomes(runner.perform(bench.order(Action.RESUME))) == [Outcome.DONE]
    assert [line.status(line.at) for line in book.entries().lines] == ["done", "unchanged", "done"]
    assert all(line.is_on_queue and line.job is None for line in book.entries().lines)


def test_many_jobs_go_in_chunks_with_an_entry_each(bench: Bench) -> None:
    ids = [str(number) for number in range(600)]
    bench.orphan(*ids)
    results = runner.perform(bench.order(Action.REQUEUE, *ids))
    assert outcomes(results) == [Outcome.DONE] * 600
    assert [result.job for result in results] == ids
    assert AuditEntry.objects.filter(phase="intent").count() == 2


# -- preview


def test_a_preview_changes_nothing(bench: Bench) -> None:
    bench.orphan("1")
    bench.held("2")
    before = bench.dump()
    preview = runner.preview(bench.order(Action.REQUEUE, "1", "2", "3", reason=""))
    assert (preview.can, preview.refused, preview.needs_name) == (1, 2, False)
    assert preview.question == "Requeue 1 job of bull:mail?"
    assert [(one.id, one.is_allowed) for one in preview.judgements] == [("1", True), ("2", False), ("3", False)]
    assert bench.dump() == before
    assert AuditEntry.objects.count() == 0


def test_a_hundred_jobs_want_the_queue_to_be_named(bench: Bench) -> None:
    ids = [str(number) for number in range(100)]
    bench.failed(*ids)
    assert runner.preview(bench.order(Action.RETRY, *ids)).needs_name
    assert not runner.preview(bench.order(Action.RETRY, *ids[:99])).needs_name


def test_a_drain_says_about_how_many(bench: Bench) -> None:
    bench.waiting("1", "2")
    bench.delayed("3")
    bench.look()
    preview = runner.preview(bench.order(Action.DRAIN))
    assert (preview.count, preview.needs_name, preview.question) == (2, True, "Drain bull:mail (about 2 jobs)?")
    assert runner.preview(bench.order(Action.DRAIN, delayed=True)).count == 3


# -- the audit comes first


def test_without_an_audit_nothing_is_done(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    before = bench.dump()

    def gone(*_: object, **__: object) -> None:
        raise OperationalError("database or disk is full")

    monkeypatch.setattr(AuditHead.objects, "select_for_update", gone)
    with pytest.raises(NotRecorded):
        runner.perform(order)
    with pytest.raises(NotRecorded):
        runner.perform(bench.order(Action.PAUSE))
    assert bench.dump() == before


def test_the_intent_is_there_before_the_act(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.orphan("1")
    found: list[str] = []

    def told(number: int) -> None:
        found.extend(AuditEntry.objects.values_list("phase", flat=True))
        assert bench.ids(JobState.ACTIVE) == ["1"]
        assert number == 1

    runner.perform(bench.order(Action.REQUEUE, "1"), ActionCallbacks(told))
    assert found == ["intent"]


def test_an_outcome_that_cannot_be_written_is_said_and_stays_unknown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.orphan("1")

    def gone(*_: object) -> None:
        raise NotRecorded("the disk is full")

    monkeypatch.setattr(audit_log, "write_outcome", gone)
    (result,) = runner.perform(bench.order(Action.REQUEUE, "1"))
    assert (result.outcome, result.audit, result.why) == (Outcome.DONE, None, execute_jobs.UNTOLD)
    (line,) = book.entries().lines
    assert line.status(line.at + book.OPEN_MS) == "unknown"


# -- a store that goes away


class Failing:
    """An operator that does what the real one does, and then loses the store."""

    def __init__(self, able: Any, error: Exception, after: int = 0) -> None:
        self._able, self._error, self._after = able, error, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._able, name)

    def on_jobs(
        self, act: Action, target: Target, seen: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        done: tuple[ScriptOutcome, ...] = self._able.on_jobs(act, target, seen, options, now)
        self._after -= 1
        if self._after < 0:
            raise self._error
        return done


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> Callable[[Exception, int], None]:
    real = precheck.operator

    def lose(error: Exception, after: int = 0) -> None:
        failing = Failing(real(BULLMQ), error, after)
        monkeypatch.setattr(precheck, "operator", lambda flavour: failing)

    return lose


def test_a_store_that_never_answered_leaves_an_unknown_outcome(
    bench: Bench, losing: Callable[[Exception, int], None]
) -> None:
    bench.orphan("1")
    losing(Unreachable("redis://queues", "it closed the connection"), 0)
    (result,) = runner.perform(bench.order(Action.REQUEUE, "1"))
    assert result.outcome is Outcome.UNKNOWN
    assert "may or may not" in result.why
    (line,) = book.entries(book.AuditFilter(outcome="unknown")).lines
    assert line.outcome == result.audit


def test_what_comes_after_the_loss_is_not_tried(bench: Bench, losing: Callable[[Exception, int], None]) -> None:
    ids = [str(number) for number in range(600)]
    bench.orphan(*ids)
    order = bench.order(Action.REQUEUE, *ids)
    losing(Unreachable("redis://queues", "gone"), 1)
    bench_results = runner.perform(order)
    first, second = bench_results[:MOVE_CHUNK], bench_results[MOVE_CHUNK:]
    assert outcomes(first) == [Outcome.DONE] * MOVE_CHUNK
    assert set(outcomes(second)) == {Outcome.UNKNOWN}


def test_a_fault_of_ours_is_recorded_before_it_is_raised(
    bench: Bench, losing: Callable[[Exception, int], None]
) -> None:
    bench.orphan("1")
    losing(ZeroDivisionError("ours"), 0)
    with pytest.raises(ZeroDivisionError):
        runner.perform(bench.order(Action.REQUEUE, "1"))
    (line,) = book.entries().lines
    assert line.status(line.at) == "unknown"


def test_a_dead_store_is_told_and_nothing_is_written(bench: Bench) -> None:
    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    bench.look()
    bench.queues.stop()
    try:
        with pytest.raises(StoreError):
            runner.perform(order)
        assert AuditEntry.objects.count() == 0
    finally:
        bench.queues.start()
