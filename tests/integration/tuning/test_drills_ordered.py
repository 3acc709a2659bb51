"""Fire drills that somebody ordered: one at a time, by the scheduler, in a process of their own, and in the audit."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recovery.domain.actions.types import Actor
from recovery.domain.drills.plan import DrillLibrary, DrillPlan
from recovery.domain.drills.results import DrillRound, DrillStatus, RoundOutcome
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.drills import drill_orders as orders
from recovery.drills import queries as seen
from recovery.drills.executor import DrillExecutor
from recovery.errors import BadOrder, Forbidden, Missing
from recovery.models import AuditEntry, DrillRun
from recovery.stores import registry
from recovery.stores.state import state_keys
from tests.support.acting import ADMIN, OPERATOR, VIEWER
from tests.support.processes.drilling import left, plan_for
from tests.support.stores.stores import Store
from tests.support.stuck.watching import config_of

pytestmark = pytest.mark.django_db(transaction=True)
EPOCH = 7
REASON = "before the night shift"
LONG = plan_for("python", wait=50_000)


@pytest.fixture
def state_at_hand(
    state_store: Store, valkey: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    config_of(tmp_path, state_store, {"main": valkey})
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    registry.reset()
    yield state_store
    registry.reset()


def scheduler(holds: Callable[[], bool] = lambda: True) -> DrillExecutor:
    return DrillExecutor(registry.registry(), LeaderToken(EPOCH, holds))


def ordered(plan: DrillPlan = LONG, actor: Actor = ADMIN) -> DrillRun:
    return orders.order(actor, plan, REASON)


def notes() -> list[dict[str, object]]:
    """What the audit says of drills, oldest first."""
    return [json.loads(entry.body) for entry in AuditEntry.objects.filter(act=orders.NOTE).order_by("number")]


def is_held(store: Store) -> bool:
    """A worker has the job. What leads is asked for all the time, so this is where tests step in."""
    return any(key.endswith(b":lock") for key in left(store))


def test_an_order_is_carried_out_and_told_in_the_audit(state_at_hand: Store) -> None:
    run = ordered(plan_for("python"))
    scheduler().look(0)
    done = seen.run(run.pk)
    assert (done.status, done.trouble, done.under_way) == (DrillStatus.ENDED, "", ())
    assert [one.end for one in done.rounds] == [RoundOutcome.AGAIN]
    assert done.version
    assert done.cleaned
    assert (done.started_at or 0) <= (done.ended_at or 0)
    first, last = notes()
    assert first["plan"] == done.plan.as_json()
    assert (last["outcome"], last["p50"], last["recovered"]) == ("ended", done.summary.p50, 1)
    assert [entry.actor for entry in AuditEntry.objects.filter(act=orders.NOTE)] == [ADMIN.name] * 2
    assert left(state_at_hand) == []


def test_one_that_is_stopped_cleans_up_and_says_who_stopped_it(state_at_hand: Store) -> None:
    run = ordered()

    asked: list[bool] = []

    def holds() -> bool:
        if not asked and is_held(state_at_hand):
            asked.extend((orders.stop(ADMIN, run.pk), orders.stop(ADMIN, run.pk)))
        return True

    scheduler(holds).look(0)
    assert asked == [True, False]
    assert seen.run(run.pk).status is DrillStatus.STOPPED
    assert [note.get("outcome") for note in notes()] == [None, None, "stopped"]
    assert left(state_at_hand) == []


def test_who_leads_no_more_ends_it(state_at_hand: Store) -> None:
    run = ordered()
    lost: list[bool] = []

    def holds() -> bool:
        if is_held(state_at_hand):
            lost.append(True)
        return not lost

    scheduler(holds).look(0)
    known = seen.run(run.pk)
    assert (known.status, known.trouble) == (
        DrillStatus.FAILED,
        "The scheduler that ran it stopped, or is no longer the leader.",
    )
    assert left(state_at_hand) == []


def test_one_that_was_cut_off_is_closed_by_whoever_leads_next(state_at_hand: Store) -> None:
    run = ordered()
    done = DrillRound(1, RoundOutcome.AGAIN, 5, (), 1200)
    kept = json.dumps([done.as_json()])
    DrillRun.objects.filter(pk=run.pk).update(status="running", epoch=EPOCH - 1, started_at=1, rounds=kept)
    scheduler(lambda: False).look(0)
    known = seen.run(run.pk)
    assert (known.status, known.rounds) == (DrillStatus.FAILED, (done,))
    assert notes()[-1]["outcome"] == "failed"


def test_one_that_was_stopped_before_it_began_never_begins(state_at_hand: Store) -> None:
    run = ordered()
    orders.stop(ADMIN, run.pk)
    scheduler().look(0)
    known = seen.run(run.pk)
    assert (known.status, known.started_at) == (DrillStatus.STOPPED, None)


def test_a_library_that_is_missing_is_said(state_at_hand: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NODE_PATH", "/nowhere")
    run = ordered(DrillPlan(DrillLibrary.BULL))
    scheduler().look(0)
    known = seen.run(run.pk)
    assert known.status is DrillStatus.FAILED
    assert "No package bull was found in /nowhere" in known.trouble
    offers = {one.library: one for one in seen.read(state_at_hand.client)}
    assert offers[DrillLibrary.PYTHON].version
    assert not offers[DrillLibrary.PYTHON].trouble
    assert "NODE_PATH" in offers[DrillLibrary.BULL].trouble


def test_offers_that_cannot_be_read_are_none(state_at_hand: Store) -> None:
    for written in ("", "[]", '{"bull": 7}', '{"bull": {"version": 1, "trouble": ""}}', "\x00"):
        state_at_hand.client.set(state_keys.DRILLS, written)
        assert seen.read(state_at_hand.client) == ()


# -- orders


@pytest.mark.parametrize("actor", [VIEWER, OPERATOR], ids=lambda actor: actor.role)
def test_it_takes_the_right_to_act_in_bulk(actor: Actor) -> None:
    with pytest.raises(Forbidden):
        ordered(actor=actor)
    run = ordered()
    with pytest.raises(Forbidden):
        orders.stop(actor, run.pk)
    assert DrillRun.objects.get().wants_stop is False
    assert len(notes()) == 1


def test_one_at_a_time() -> None:
    ordered()
    with pytest.raises(BadOrder, match="Another fire drill"):
        ordered()
    assert DrillRun.objects.count() == len(notes()) == 1


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (DrillPlan(workers=0), "Workers: Write 1 to 16"),
        (DrillPlan(rounds=50, stalled_interval=600_000), "more than four hours"),
    ],
    ids=["workers", "hours"],
)
def test_what_cannot_be_tried_is_not_ordered(plan: DrillPlan, words: str) -> None:
    with pytest.raises(BadOrder, match=words):
        ordered(plan)
    with pytest.raises(BadOrder, match="reason"):
        orders.order(ADMIN, DrillPlan(), " \n ")
    assert DrillRun.objects.count() == len(notes()) == 0


def test_only_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orders, "KEPT", 3)
    for _ in range(5):
        DrillRun.objects.filter(pk=ordered().pk).update(status="ended")
    last = ordered()
    assert [run.pk for run in DrillRun.objects.order_by("-pk")] == [last.pk, last.pk - 1, last.pk - 2]
    with pytest.raises(Missing):
        orders.stop(ADMIN, last.pk - 5)
