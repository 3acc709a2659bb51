"""Fire drills as values: stages that sum up, plans that are written and read back, what is expected of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.drills.plan import (
    DrillLibrary,
    DrillPlan,
    StopSignal,
    arguments,
    is_drill,
    plan_warnings,
    predicted,
    problems,
    total_stage,
)
from recovery.domain.drills.results import (
    DrillRound,
    DrillStage,
    MeasuredStage,
    RoundOutcome,
    measure_stages,
    summarize,
)
from recovery.domain.tuning.prediction import CHECK, LOCK, PICK_UP
from recovery.management.commands.drill import Command, plan_of

MOMENTS = {
    DrillStage.ENDED: 100.01,
    DrillStage.GONE: 100.02,
    DrillStage.UNLOCKED: 101.0,
    DrillStage.MARKED: 100.5,
    DrillStage.BACK: 102.5,
    DrillStage.AGAIN: 102.503,
}


def a_round(number: int, end: RoundOutcome, total: int | None) -> DrillRound:
    return DrillRound(number, end, 10, (MeasuredStage(DrillStage.AGAIN, total, total),), total)


def test_stages_stand_in_order_and_sum_up_to_the_whole() -> None:
    stages = measure_stages(MOMENTS, 100.0, DrillStage.AGAIN)
    assert [one.stage for one in stages] == [one for one in DrillStage if one is not DrillStage.FAILED]
    assert [one.at for one in stages] == sorted(one.at or 0 for one in stages)
    assert sum(one.took or 0 for one in stages) == stages[-1].at == 2503


def test_a_mark_from_before_the_locks_end_adds_nothing() -> None:
    marked = next(one for one in measure_stages(MOMENTS, 100.0, DrillStage.AGAIN) if one.stage is DrillStage.MARKED)
    assert (marked.at, marked.took) == (1000, 0)
    before_the_signal = measure_stages(MOMENTS | {DrillStage.MARKED: 99.0}, 100.0, DrillStage.AGAIN)
    assert before_the_signal == measure_stages(MOMENTS, 100.0, DrillStage.AGAIN)


def test_what_was_not_seen_is_unknown_and_its_time_goes_to_the_next() -> None:
    stages = {one.stage: one for one in measure_stages(MOMENTS | {DrillStage.GONE: None}, 100.0, DrillStage.AGAIN)}
    assert (stages[DrillStage.GONE].at, stages[DrillStage.GONE].took) == (None, None)
    assert stages[DrillStage.UNLOCKED].took == 990
    assert sum(one.took or 0 for one in stages.values()) == 2503


def test_a_round_knows_how_long_each_stage_of_the_prediction_took() -> None:
    one = DrillRound(1, RoundOutcome.AGAIN, 10, measure_stages(MOMENTS, 100.0, DrillStage.AGAIN), 2503)
    assert [one.took(part) for part in (LOCK, CHECK, PICK_UP)] == [1000, 1500, 3]
    assert DrillRound(1, RoundOutcome.LEFT, 10, measure_stages({}, 100.0, DrillStage.AGAIN), None).took(CHECK) is None


def test_p50_and_worst_are_those_of_rounds_that_ended_in_a_recovery() -> None:
    rounds = [
        a_round(1, RoundOutcome.AGAIN, 30),
        a_round(2, RoundOutcome.LEFT, None),
        a_round(3, RoundOutcome.FAILED, 10),
    ]
    rounds += [
        a_round(4, RoundOutcome.AGAIN, 50),
        a_round(5, RoundOutcome.TWICE, None),
        a_round(6, RoundOutcome.AGAIN, 20),
    ]
    summary = summarize(rounds)
    assert (summary.p50, summary.worst, summary.recovered, summary.rounds) == (20, 50, 4, 6)
    nothing = summarize([a_round(1, RoundOutcome.LEFT, None)])
    assert (nothing.p50, nothing.worst) == (None, None)


def test_a_round_is_read_back_as_it_was_written() -> None:
    one = DrillRound(3, RoundOutcome.FAILED, 7, measure_stages(MOMENTS, 100.0, DrillStage.FAILED), None, True, "“said”")
    assert DrillRound.of_json(one.as_json()) == one
    with pytest.raises(ValueError, match="whole number"):
        DrillRound.of_json(one.as_json() | {"wait": "7"})


PLANS = {
    "default": DrillPlan(),
    "deploy": DrillPlan(DrillLibrary.BULL, means=StopSignal.TERM, grace=65_000, shutdown=45_000, workers=3),
    "odd": DrillPlan(DrillLibrary.PYTHON, lock=1500, renew=700, stalled_interval=0, wait=0, timeout=5000, rounds=2),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_back_as_it_was_written_and_as_the_shell_is_told(name: str) -> None:
    plan = PLANS[name]
    assert DrillPlan.of_json(plan.as_json()) == plan
    given = Command().create_parser("manage.py", "drill").parse_args(list(arguments(plan)))
    assert plan_of(given) == plan


def test_a_plan_that_an_older_version_wrote_is_read_and_one_that_is_none_is_not() -> None:
    assert DrillPlan.of_json({"library": "bull", "means": "TERM", "lock": 5}) == DrillPlan(
        DrillLibrary.BULL, 5, means=StopSignal.TERM
    )
    for broken in ([], {}, {"library": "x", "means": "KILL"}, DrillPlan().as_json() | {"lock": "5"}):
        with pytest.raises(ValueError, match=r"."):
            DrillPlan.of_json(broken)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lock", 0), ("rounds", 51), ("workers", 0), ("workers", 17), ("job", 10), ("wait", 130_000), ("timeout", 0)],
)
def test_what_cannot_be_tried_is_a_problem_of_its_field(name: str, value: int) -> None:
    assert set(problems(replace(DrillPlan(), **{name: value}))) == {name}
    assert problems(DrillPlan()) == {}


def test_values_that_cannot_go_well_are_tried_with_a_word() -> None:
    wrong = DrillPlan(renew=30_000, stalled_interval=0, workers=1, means=StopSignal.TERM)
    assert problems(wrong) == {}
    told = " ".join(plan_warnings(wrong))
    for word in ("before it is renewed", "no stalled check", "no other worker", "killed with SIGKILL"):
        assert word in told
    assert plan_warnings(DrillPlan()) == ()


def test_a_round_is_waited_for_longer_than_the_worst_that_is_predicted() -> None:
    for plan in PLANS.values():
        expected = total_stage(predicted(plan))
        if expected and plan.timeout is None:
            assert plan.patience > expected.at_most


def test_a_worker_that_is_asked_to_end_is_expected_to_take_its_time_first() -> None:
    killed, asked = PLANS["deploy"], replace(PLANS["deploy"], means=StopSignal.KILL)
    assert [one.name for one in predicted(killed)] == [LOCK, CHECK, PICK_UP]
    for late, soon in zip(predicted(killed), predicted(asked), strict=True):
        assert late.typical - soon.typical == (45_000 if late.name == LOCK else 0)
    assert predicted(replace(asked, workers=1)) == ()
    assert predicted(replace(asked, stalled_interval=0)) == ()


def test_only_a_queue_of_a_drill_is_one() -> None:
    assert is_drill("unstall-drill:0a")
    for base in ("bull:unstall-drill", "unstall-drill", "unstall-drills:x", "bull:jobs"):
        assert not is_drill(base)
