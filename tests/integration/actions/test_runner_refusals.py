"""The one door, shut: who may not, what cannot be, and every refusal by a fresh look at a real queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError

from recovery.actions import runner
from recovery.domain.actions.types import Action, ActionCommand, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import (
    BadOrder,
    DeploymentMissing,
    Forbidden,
    NotRecorded,
    QueueMissing,
    Unsupported,
)
from recovery.models import AuditEntry
from recovery.reads.stuck import incidents
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores.registry import registry
from tests.support.acting import ADMIN, OPERATOR, VIEWER, Bench, set_up
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db


def outcomes(results: Sequence[Any]) -> list[Outcome]:
    return [result.outcome for result in results]


# -- rights and wrong orders


@pytest.mark.parametrize("call", [runner.preview, runner.perform])
def test_a_viewer_may_do_nothing(bench: Bench, call: Callable[[ActionCommand], object]) -> None:
    bench.orphan("1")
    with pytest.raises(Forbidden):
        call(bench.order(Action.REQUEUE, "1", actor=VIEWER))
    assert bench.ids(JobState.ACTIVE) == ["1"]


@pytest.mark.parametrize("call", [runner.preview, runner.perform])
def test_an_operator_acts_on_one_job_at_a_time(bench: Bench, call: Callable[[ActionCommand], object]) -> None:
    bench.orphan("1", "2")
    with pytest.raises(Forbidden, match="many jobs at once"):
        call(bench.order(Action.REQUEUE, "1", "2", actor=OPERATOR))


@pytest.mark.parametrize("act", [Action.PAUSE, Action.RESUME, Action.CLEAN, Action.DRAIN])
def test_an_operator_does_not_touch_a_whole_queue(bench: Bench, act: Action) -> None:
    with pytest.raises(Forbidden, match="needs the permission to"):
        runner.perform(bench.order(act, actor=OPERATOR))


@pytest.mark.parametrize("reason", ["", "  \n\t", "x" * 501])
def test_a_reason_is_needed_and_bounded(bench: Bench, reason: str) -> None:
    bench.orphan("1")
    with pytest.raises(BadOrder, match="reason"):
        runner.perform(bench.order(Action.REQUEUE, "1", reason=reason))
    assert AuditEntry.objects.count() == 0


def test_an_order_must_fit_its_act(bench: Bench) -> None:
    bench.orphan("1")
    with pytest.raises(BadOrder, match="at least one"):
        runner.perform(bench.order(Action.REQUEUE))
    with pytest.raises(BadOrder, match="queue itself"):
        runner.perform(bench.order(Action.PAUSE, "1"))
    with pytest.raises(BadOrder, match="number"):
        runner.perform(bench.order(Action.RESTORE))


def test_a_job_that_is_named_twice_is_meant_once(bench: Bench) -> None:
    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    assert len(runner.perform(replace(order, jobs=order.jobs * 2))) == 1


# -- targets


def test_a_read_only_deployment_is_left_alone(
    valkey: Store, state_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with set_up(valkey, state_store, tmp_path, monkeypatch, read_only=True) as bench:
        bench.orphan("1")
        with pytest.raises(Unsupported, match="read only"):
            runner.perform(bench.order(Action.REQUEUE, "1"))


def test_a_queue_of_bullmq_pro_is_left_alone(bench: Bench) -> None:
    bench.client.hset("bull:mail:meta", "version", "bullmq-pro:7.1.0")
    bench.orphan("1")
    with pytest.raises(Unsupported, match="Pro"):
        runner.perform(bench.order(Action.REQUEUE, "1"))


def test_what_is_not_there_is_missing(bench: Bench) -> None:
    order = ActionCommand(Action.PAUSE, QueueRef("main", "bull:nothing"), ADMIN, "why not")
    with pytest.raises(QueueMissing):
        runner.perform(order)
    with pytest.raises(DeploymentMissing):
        runner.perform(replace(order, queue=QueueRef("other", "bull:mail")))
    (result,) = runner.perform(bench.order(Action.REQUEUE, "404"))
    assert result.outcome is Outcome.MISSING
    assert AuditEntry.objects.count() == 0


# -- refusals by a fresh look


def refused(bench: Bench, order: ActionCommand) -> str:
    """Why; and that nothing was changed, nor anything written down."""
    before = bench.dump()
    (result,) = runner.perform(order)
    assert result.outcome is Outcome.REFUSED
    assert bench.dump() == before
    assert AuditEntry.objects.count() == 0
    return result.why


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
def test_a_locked_job_is_neither_requeued_nor_failed(bench: Bench, act: Action) -> None:
    bench.held("1")
    assert "holds its lock" in refused(bench, bench.order(act, "1", force=True))


def test_a_locked_job_is_not_removed(bench: Bench) -> None:
    bench.held("1")
    assert "holds its lock" in refused(bench, bench.order(Action.REMOVE, "1", force=True))


@pytest.mark.parametrize("act", [Action.REQUEUE, Action.FAIL])
def test_a_ghost_is_neither_requeued_nor_failed(bench: Bench, act: Action) -> None:
    bench.client.lpush("bull:mail:active", "9")
    assert "job data is missing" in refused(bench, bench.order(act, "9"))


def test_a_job_that_moved_since_it_was_shown_is_refused_with_its_new_state(bench: Bench) -> None:
    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    bench.client.lrem("bull:mail:active", 1, "1")
    bench.client.lpush("bull:mail:wait", "1")
    assert refused(bench, order) == "It is waiting now."


def test_a_job_that_was_started_again_since_it_was_shown_is_refused(bench: Bench) -> None:
    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    bench.client.hset("bull:mail:1", "ats", 2)
    assert "started it again" in refused(bench, order)


def test_a_connected_holder_is_released_by_force_only(bench: Bench) -> None:
    bench.held("1")
    why = refused(bench, bench.order(Action.RELEASE, "1"))
    assert "this job will run twice" in why
    assert "force" in why
    assert outcomes(runner.perform(bench.order(Action.RELEASE, "1", force=True))) == [Outcome.DONE]
    assert not bench.client.exists("bull:mail:1:lock")


def test_the_lock_of_a_holder_that_is_gone_is_released(bench: Bench) -> None:
    """No worker is connected at all, so nobody can be meant by the lock."""
    bench.held("1")
    bench.look()
    assert outcomes(runner.perform(bench.order(Action.RELEASE, "1"))) == [Outcome.DONE]


def test_a_lock_without_an_end_is_released_with_a_warning(bench: Bench) -> None:
    bench.held("1", ttl=None)
    order = bench.order(Action.RELEASE, "1")
    assert "never expires" in runner.preview(order).risk
    assert outcomes(runner.perform(order)) == [Outcome.DONE]


def test_another_token_than_the_one_shown_is_not_released(bench: Bench) -> None:
    bench.held("1")
    bench.look()
    order = bench.order(Action.RELEASE, "1")
    bench.client.set("bull:mail:1:lock", "other:1", px=30_000)
    assert "Another worker" in refused(bench, order)


def test_what_nobody_holds_is_not_cancelled(bench: Bench) -> None:
    bench.orphan("1")
    assert "No worker holds it" in refused(bench, bench.order(Action.CANCEL, "1"))


@pytest.mark.parametrize(
    ("act", "word"), [(Action.RETRY, "waiting"), (Action.PROMOTE, "waiting"), (Action.REQUEUE, "waiting")]
)
def test_a_job_in_another_state_is_refused(bench: Bench, act: Action, word: str) -> None:
    bench.waiting("1")
    assert word in refused(bench, bench.order(act, "1"))


def test_a_clean_needs_a_state(bench: Bench) -> None:
    assert "the state to clean" in refused(bench, bench.order(Action.CLEAN))


# -- Bull: two sightings


def test_an_orphan_of_bull_is_requeued_when_two_looks_have_proven_it(bench: Bench) -> None:
    """Bull locks a job a moment after it took it: one look proves nothing."""
    bull = Bench(bench.queues, bench.state, base="bull:old")
    bull.client.set("bull:old:id", 1)
    bull.orphan("1", ats=None, opts='{"attempts":1,"timestamp":1}')
    why = refused(bull, bull.order(Action.REQUEUE, "1"))
    assert "not yet proof" in why
    snapshot = bull.look(LibraryVersion(QueueLibrary.BULL, 4))
    watch = OrphanWatch(registry(), lambda: snapshot)
    watch.run(now_ms() - 45_000)
    watch.run(now_ms() - 5_000)
    (result,) = runner.perform(bull.order(Action.REQUEUE, "1"))
    assert (result.outcome, result.why) == (Outcome.DONE, "")
    assert bull.ids(JobState.WAITING) == ["1"]


def test_what_cannot_be_known_to_be_no_quarantine_is_left_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database tells nothing of earlier incidents, and would take the audit's entries all the same."""

    def unreadable(*_: object) -> dict[str, int]:
        raise DatabaseError("canceling statement due to statement timeout")

    bench.orphan("1")
    order = bench.order(Action.REQUEUE, "1")
    monkeypatch.setattr(incidents, "orphan_counts", unreadable)
    with pytest.raises(NotRecorded, match="earlier incidents"):
        runner.perform(order)
    assert (bench.ids(JobState.ACTIVE), AuditEntry.objects.count()) == (["1"], 0)
