"""Acts and bulk runs of a scheduler that leads no more: refused, told to the audit, and left to the one that leads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from recovery.actions import runner
from recovery.actions.audit import audit_log
from recovery.actions.bulk import bulk_runs
from recovery.actions.bulk.bulk_runs import BulkRunner
from recovery.actions.bulk.run_lock import BulkRunLock, BulkRunTaken
from recovery.backends.base import MOVE_CHUNK
from recovery.backends.bullmq import scripts
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.backends.bullmq.retry_promote import SCRIPT_JOBS
from recovery.backends.redis_common import fencing
from recovery.domain.actions.types import Action, Outcome, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.errors import Fenced
from recovery.models import AuditEntry, BulkItem, BulkRun
from recovery.reads.audit import queries as book
from recovery.reads.bulk import queries as progress_of
from recovery.stores.registry import registry
from tests.support.acting import Bench, all_of, finish
from tests.support.stores.fences import hold
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db

OLD, NEW = 1_795_000_100, 1_795_000_200
LEADS = f"Another scheduler is the leader (epoch {NEW})."


def _lead(bench: Bench, epoch: int = NEW) -> None:
    hold(bench.client, bench.base, epoch)


@pytest.fixture
def later(bench: Bench) -> Iterator[BulkRunner]:
    """Of the scheduler that leads now."""
    yield from _hands(NEW)


@pytest.fixture
def former(bench: Bench) -> Iterator[BulkRunner]:
    """Of the one that led, and does not know that it is over."""
    yield from _hands(OLD)


def _hands(epoch: int) -> Iterator[BulkRunner]:
    hands = BulkRunner(registry(), LeaderToken(epoch, always_leader))
    yield hands
    hands.close()


@pytest.fixture
def at_script(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Something happens right before the n-th call of the operator."""

    def set_trap(number: int, happens: Callable[[], None]) -> None:
        real, count = BullMQOperator.on_jobs, [0]

        def on_jobs(self: BullMQOperator, *arguments: Any) -> Sequence[ScriptOutcome]:
            count[0] += 1
            if count[0] == number:
                happens()
            return real(self, *arguments)

        monkeypatch.setattr(BullMQOperator, "on_jobs", on_jobs)

    return set_trap


# -- one order


def test_an_order_of_an_older_epoch_is_refused_and_the_audit_says_why(bench: Bench) -> None:
    bench.failed("1", "2")
    _lead(bench)
    before = bench.dump()
    with pytest.raises(Fenced) as told:
        runner.perform(replace(bench.order(Action.RETRY, "1", "2"), epoch=OLD))
    assert bench.dump() == before
    assert (told.value.met, str(told.value)) == (NEW, LEADS)
    assert [(one.outcome, one.why) for one in told.value.results] == [(Outcome.REFUSED, LEADS)] * 2
    intent = AuditEntry.objects.get(phase="intent")
    assert book.load_entry(intent.number).body["epoch"] == OLD
    detail = book.entry(intent.number)
    assert (detail.line.tally, LEADS in AuditEntry.objects.get(phase="outcome").body) == ({"refused": 2}, True)


def test_an_order_of_the_one_that_leads_is_done_under_its_epoch(bench: Bench) -> None:
    bench.failed("1")
    (result,) = runner.perform(replace(bench.order(Action.RETRY, "1"), epoch=NEW))
    assert result.outcome is Outcome.DONE
    assert bench.client.get(fencing.epoch_key_of(bench.base)) == b"%d" % NEW


def test_the_order_of_a_person_leaves_no_key(bench: Bench) -> None:
    bench.failed("1")
    _lead(bench)
    (result,) = runner.perform(bench.order(Action.RETRY, "1"))
    assert result.outcome is Outcome.DONE
    assert book.load_entry(AuditEntry.objects.get(phase="intent").number).body.get("epoch") is None


def test_of_an_order_that_is_overtaken_each_job_has_its_result(
    bench: Bench, at_script: Callable[[int, Callable[[], None]], None]
) -> None:
    ids = [str(number) for number in range(MOVE_CHUNK + 100)]
    bench.orphan(*ids)
    at_script(2, lambda: _lead(bench))
    with pytest.raises(Fenced) as told:
        runner.perform(replace(bench.order(Action.REQUEUE, *ids), epoch=OLD))
    results = told.value.results
    done = [one.job for one in results if one.outcome is Outcome.DONE]
    assert [one.job for one in results] == ids
    assert done == ids[:MOVE_CHUNK]
    assert sorted(bench.ids(JobState.WAITING)) == sorted(done)
    assert AuditEntry.objects.filter(phase="outcome").count() == 2


@pytest.mark.parametrize("act", [Action.PAUSE, Action.CLEAN, Action.DRAIN])
def test_an_act_on_the_queue_is_refused_as_well(bench: Bench, act: Action) -> None:
    bench.failed("1")
    bench.waiting("2")
    _lead(bench)
    before = bench.dump()
    with pytest.raises(Fenced):
        runner.perform(replace(bench.order(act, state=JobState.FAILED), epoch=OLD))
    assert bench.dump() == before
    outcome = AuditEntry.objects.get(phase="outcome")
    (told,) = json.loads(outcome.body)["jobs"]
    assert (told["outcome"], told["why"]) == ("refused", LEADS)


def test_a_clean_that_is_overtaken_keeps_what_it_took(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.failed(*(str(number) for number in range(10)))
    _overtake_cleans(monkeypatch)
    with pytest.raises(Fenced) as told:
        runner.perform(replace(bench.order(Action.CLEAN, state=JobState.FAILED), epoch=OLD))
    (result,) = told.value.results
    assert (result.outcome, result.can_restore) == (Outcome.DONE, True)
    assert "4 removed" in result.why
    assert LEADS in result.why
    runner.restore(result.audit or 0, bench.order(Action.RESTORE).actor, "too much")
    assert len(bench.ids(JobState.FAILED)) == 10


def _overtake_cleans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the next step, four jobs went before another scheduler led."""
    real = BullMQOperator.take_away

    def overtaken(self: BullMQOperator, *arguments: Any, budget: int) -> Any:
        monkeypatch.setattr(BullMQOperator, "take_away", real)
        step = real(self, *arguments, budget=min(budget, 4))
        return replace(step, fenced=NEW, is_finished=False)

    monkeypatch.setattr(BullMQOperator, "take_away", overtaken)


# -- bulk runs


def test_a_run_of_one_that_leads_no_more_is_left_to_the_one_that_does(
    bench: Bench, former: BulkRunner, later: BulkRunner
) -> None:
    bench.failed("1", "2")
    run = all_of(bench, Action.RETRY)
    _lead(bench)
    former.run(0)
    found = progress_of.progress(run.pk, now_ms())
    assert (found.is_open, found.done, found.refused, found.trouble) == (True, 0, 0, LEADS)
    assert AuditEntry.objects.exclude(phase="note").count() == 0
    found = finish(later, run)
    assert (found.status, found.done, found.trouble) == ("ended", 2, "")


@pytest.mark.parametrize("act", [Action.CLEAN, Action.DRAIN])
def test_so_is_a_clean_or_a_drain(act: Action, bench: Bench, former: BulkRunner, later: BulkRunner) -> None:
    bench.failed("1")
    bench.waiting("2")
    run = bulk_runs.order(bench.order(act, state=JobState.FAILED))
    _lead(bench)
    before = bench.dump()
    former.run(0)
    assert bench.dump() == before
    found = finish(later, run)
    assert (found.status, found.done, found.refused) == ("ended", 1, 0)


def test_a_clean_of_so_many_takes_no_more_when_it_is_overtaken(
    bench: Bench, former: BulkRunner, later: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.failed(*(str(number) for number in range(10)))
    run = bulk_runs.order(bench.order(Action.CLEAN, state=JobState.FAILED, limit=6))
    _overtake_cleans(monkeypatch)
    former.run(0)
    assert (progress_of.progress(run.pk, now_ms()).done, len(bench.ids(JobState.FAILED))) == (4, 6)
    found = finish(later, run)
    assert (found.status, found.done, len(bench.ids(JobState.FAILED))) == ("ended", 6, 4)


def test_a_chunk_that_is_refused_half_way_is_settled_by_the_one_that_leads(
    bench: Bench, former: BulkRunner, later: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was done before is done, and is no riddle: the audit knows it."""
    ids = [str(number) for number in range(120)]
    bench.failed(*ids)
    run = all_of(bench, Action.RETRY)
    real = scripts.run_each

    def overtaken(target: Any, name: str, runs: Sequence[Any]) -> list[Any]:
        """Behind the first of its scripts."""
        first = real(target, name, runs[:1])
        _lead(bench)
        return [*first, *real(target, name, runs[1:])]

    monkeypatch.setattr(scripts, "run_each", overtaken)
    former.run(0)
    assert len(bench.ids(JobState.WAITING)) == SCRIPT_JOBS
    assert BulkItem.objects.filter(run=run).exclude(outcome="").count() == 0
    found = finish(later, run)
    assert (found.status, found.done, found.unknown, found.refused) == ("ended", 120, 0, 0)
    assert sorted(bench.ids(JobState.WAITING), key=int) == ids


def test_one_that_was_stopped_behind_its_script_settles_nothing_twice(
    bench: Bench, former: BulkRunner, later: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one finds its chunk done, and ends the run, before this one writes down what it did."""
    bench.failed(*(str(number) for number in range(30)))
    run = all_of(bench, Action.RETRY)
    real = audit_log.write_outcome

    def stopped(*arguments: Any, **named: Any) -> int:
        monkeypatch.setattr(audit_log, "write_outcome", real)
        finish(later, run)
        return real(*arguments, **named)

    monkeypatch.setattr(audit_log, "write_outcome", stopped)
    former.run(0)
    found = progress_of.progress(run.pk, now_ms())
    assert (found.status, found.settled, found.done + found.unknown) == ("ended", 30, 30)
    assert len(set(bench.ids(JobState.WAITING))) == len(bench.ids(JobState.WAITING)) == 30


def test_one_that_lost_its_claim_before_the_script_does_not_send_it(
    bench: Bench, former: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.failed("1")
    run = all_of(bench, Action.RETRY)
    real = audit_log.write_intent

    def stopped(*arguments: Any, **named: Any) -> int:
        taken = BulkRunLock.take(run.pk, now_ms())
        assert taken is not None
        return real(*arguments, **named)

    monkeypatch.setattr(audit_log, "write_intent", stopped)
    former.run(0)
    assert bench.ids(JobState.FAILED) == ["1"]
    assert AuditEntry.objects.exclude(phase="note").count() == 0, "its intent is taken back"
    assert BulkItem.objects.count() == 0


def test_a_claim_that_is_lost_settles_nothing(bench: Bench) -> None:
    bench.failed("1")
    run = all_of(bench, Action.RETRY)
    one = BulkRunLock.take(run.pk, now_ms())
    assert one is not None
    one.insist()
    other = BulkRunLock.take(run.pk, now_ms())
    assert other is not None
    with pytest.raises(BulkRunTaken):
        one.insist(done=7)
    assert BulkRun.objects.get().done == 0
