"""Fire drills as values: stages that sum up, plans that are written and read back, what is expected of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.drills.plan import (
    Library,
    Means,
    Plan,
    arguments,
    doubts,
    in_all,
    is_drill,
    predicted,
    problems,
)
from recovery.domain.drills.rounds import End, Measured, Round, Stage, measured, summed
from recovery.domain.tuning.prediction import CHECK, LOCK, PICK_UP
from recovery.management.commands.drill import Command, plan_of

MOMENTS = {
    Stage.ENDED: 100.01,
    Stage.GONE: 100.02,
    Stage.UNLOCKED: 101.0,
    Stage.MARKED: 100.5,
    Stage.BACK: 102.5,
    Stage.AGAIN: 102.503,
}


def a_round(number: int, end: End, total: int | None) -> Round:
    return Round(number, end, 10, (Measured(Stage.AGAIN, total, total),), total)


def test_stages_stand_in_order_and_sum_up_to_the_whole() -> None:
    stages = measured(MOMENTS, 100.0, Stage.AGAIN)
    assert [one.stage for one in stages] == [one for one in Stage if one is not Stage.FAILED]
    assert [one.at for one in stages] == sorted(one.at or 0 for one in stages)
    assert sum(one.took or 0 for one in stages) == stages[-1].at == 2503


def test_a_mark_from_before_the_locks_end_adds_nothing() -> None:
    marked = next(one for one in measured(MOMENTS, 100.0, Stage.AGAIN) if one.stage is Stage.MARKED)
    assert (marked.at, marked.took) == (1000, 0)
    before_the_signal = measured(MOMENTS | {Stage.MARKED: 99.0}, 100.0, Stage.AGAIN)
    assert before_the_signal == measured(MOMENTS, 100.0, Stage.AGAIN)


def test_what_was_not_seen_is_unknown_and_its_time_goes_to_the_next() -> None:
    stages = {one.stage: one for one in measured(MOMENTS | {Stage.GONE: None}, 100.0, Stage.AGAIN)}
    assert (stages[Stage.GONE].at, stages[Stage.GONE].took) == (None, None)
    assert stages[Stage.UNLOCKED].took == 990
    assert sum(one.took or 0 for one in stages.values()) == 2503


def test_a_round_knows_how_long_each_stage_of_the_prediction_took() -> None:
    one = Round(1, End.AGAIN, 10, measured(MOMENTS, 100.0, Stage.AGAIN), 2503)
    assert [one.took(part) for part in (LOCK, CHECK, PICK_UP)] == [1000, 1500, 3]
    assert Round(1, End.LEFT, 10, measured({}, 100.0, Stage.AGAIN), None).took(CHECK) is None


def test_p50_and_worst_are_those_of_rounds_that_ended_in_a_recovery() -> None:
    rounds = [a_round(1, End.AGAIN, 30), a_round(2, End.LEFT, None), a_round(3, End.FAILED, 10)]
    rounds += [a_round(4, End.AGAIN, 50), a_round(5, End.TWICE, None), a_round(6, End.AGAIN, 20)]
    summary = summed(rounds)
    assert (summary.p50, summary.worst, summary.recovered, summary.rounds) == (20, 50, 4, 6)
    nothing = summed([a_round(1, End.LEFT, None)])
    assert (nothing.p50, nothing.worst) == (None, None)


def test_a_round_is_read_back_as_it_was_written() -> None:
    one = Round(3, End.FAILED, 7, measured(MOMENTS, 100.0, Stage.FAILED), None, True, "“said”")
    assert Round.of_json(one.as_json()) == one
    with pytest.raises(ValueError, match="whole number"):
        Round.of_json(one.as_json() | {"wait": "7"})


PLANS = {
    "default": Plan(),
    "deploy": Plan(Library.BULL, means=Means.TERM, grace=65_000, shutdown=45_000, workers=3),
    "odd": Plan(Library.PYTHON, lock=1500, renew=700, stalled_interval=0, wait=0, timeout=5000, rounds=2),
}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_read_back_as_it_was_written_and_as_the_shell_is_told(name: str) -> None:
    plan = PLANS[name]
    assert Plan.of_json(plan.as_json()) == plan
    given = Command().create_parser("manage.py", "drill").parse_args(list(arguments(plan)))
    assert plan_of(given) == plan


def test_a_plan_that_an_older_version_wrote_is_read_and_one_that_is_none_is_not() -> None:
    assert Plan.of_json({"library": "bull", "means": "TERM", "lock": 5}) == Plan(Library.BULL, 5, means=Means.TERM)
    for broken in ([], {}, {"library": "x", "means": "KILL"}, Plan().as_json() | {"lock": "5"}):
        with pytest.raises(ValueError, match=r"."):
            Plan.of_json(broken)


@pytest.mark.parametrize(
    ("name", "value"),
    [("lock", 0), ("rounds", 51), ("workers", 0), ("workers", 17), ("job", 10), ("wait", 130_000), ("timeout", 0)],
)
def test_what_cannot_be_tried_is_a_problem_of_its_field(name: str, value: int) -> None:
    assert set(problems(replace(Plan(), **{name: value}))) == {name}
    assert problems(Plan()) == {}


def test_values_that_cannot_go_well_are_tried_with_a_word() -> None:
    wrong = Plan(renew=30_000, stalled_interval=0, workers=1, means=Means.TERM)
    assert problems(wrong) == {}
    told = " ".join(doubts(wrong))
    for word in ("before it is renewed", "no stalled check", "no other worker", "killed with SIGKILL"):
        assert word in told
    assert doubts(Plan()) == ()


def test_a_round_is_waited_for_longer_than_the_worst_that_is_predicted() -> None:
    for plan in PLANS.values():
        expected = in_all(predicted(plan))
        if expected and plan.timeout is None:
            assert plan.patience > expected.at_most


def test_a_worker_that_is_asked_to_end_is_expected_to_take_its_time_first() -> None:
    killed, asked = PLANS["deploy"], replace(PLANS["deploy"], means=Means.KILL)
    assert [one.name for one in predicted(killed)] == [LOCK, CHECK, PICK_UP]
    for late, soon in zip(predicted(killed), predicted(asked), strict=True):
        assert late.typical - soon.typical == (45_000 if late.name == LOCK else 0)
    assert predicted(replace(asked, workers=1)) == ()
    assert predicted(replace(asked, stalled_interval=0)) == ()


def test_only_a_queue_of_a_drill_is_one() -> None:
    assert is_drill("unstall-drill:0a")
    for base in ("bull:unstall-drill", "unstall-drill", "unstall-drills:x", "bull:jobs"):
        assert not is_drill(base)
