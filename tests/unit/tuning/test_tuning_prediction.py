"""How long a lost job waits, and who is killed while it works: the arithmetic, and how it fits what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.queues.types import QueueLibrary
from recovery.domain.tuning.prediction import CHECK, ERROR, LOCK, PICK_UP, PredictedRecovery, PredictedStage, predict
from recovery.domain.tuning.proposal import propose_timing
from recovery.domain.tuning.timing import WorkerTiming

PUBLISHED = WorkerTiming(QueueLibrary.BULL, lock=60, renew=10, stalled_interval=30, shutdown=30, grace=30)
PROPOSED = WorkerTiming(QueueLibrary.BULL, lock=30, renew=5, stalled_interval=15, shutdown=45, pre_stop=5, grace=65)
BULLMQ = WorkerTiming(QueueLibrary.BULLMQ, lock=30, renew=15, stalled_interval=30)


def recovery(timing: WorkerTiming) -> PredictedRecovery:
    said = predict(timing).recovery
    assert said
    return said


def test_the_published_case_takes_about_90_s_and_races_sigkill() -> None:
    said = predict(PUBLISHED)
    assert said.recovery
    assert said.recovery.about == 90
    assert said.shutdown
    assert said.shutdown.races
    assert said.shutdown.margin == 0


def test_the_published_remedy_takes_about_45_s_and_races_nothing() -> None:
    said = predict(PROPOSED)
    assert said.recovery
    assert said.recovery.about == 45
    assert said.shutdown
    assert not said.shutdown.races
    assert said.shutdown.margin == 15


def test_what_is_proposed_for_the_published_case_is_the_published_remedy() -> None:
    assert propose_timing(PUBLISHED, has_pre_stop=True) == PROPOSED


def test_bullmq_at_its_defaults_fits_what_was_measured() -> None:
    said = recovery(BULLMQ)
    assert said.typical == pytest.approx(63, abs=5), "p50 of 80 jobs"
    assert 114 <= said.worst <= 1.1 * 114, "the worst of them"


@pytest.mark.parametrize(
    ("timing", "p50", "worst"),
    [(BULLMQ, 56, 105), (PUBLISHED, 70, 111)],
    ids=["BullMQ 5.81 at its defaults", "Bull 4.16 as n8n sets it"],
)
def test_it_fits_what_kills_at_a_tenth_of_the_settings_took(timing: WorkerTiming, p50: float, worst: float) -> None:
    said = recovery(timing)
    assert said.typical == pytest.approx(p50, rel=0.1)
    assert worst <= said.worst <= 1.2 * worst


def test_the_stages_are_the_whole_way() -> None:
    said = recovery(PUBLISHED)
    assert [stage.name for stage in said.stages] == [LOCK, CHECK, PICK_UP]
    assert (said.at_least, said.typical, said.worst) == (50, 70, 120)
    for stage in said.stages:
        assert 0 <= stage.at_least <= stage.typical <= stage.at_most


def test_a_lock_shorter_than_the_interval_waits_for_two_checks() -> None:
    """The first one finds it unmarked: it was renewed after the last."""
    said = recovery(WorkerTiming(lock=5, renew=2, stalled_interval=30))
    assert said.about == 60
    assert said.worst == 120


def test_without_a_check_nothing_is_ever_recovered() -> None:
    assert predict(WorkerTiming(stalled_interval=0)).recovery is None


def test_no_stall_is_forgiven_where_none_may_be() -> None:
    assert not predict(WorkerTiming(max_stalled=0)).runs_again
    assert predict(WorkerTiming(max_stalled=1)).runs_again


def test_without_the_times_of_a_stop_nothing_is_said_of_it() -> None:
    assert predict(WorkerTiming(shutdown=30)).shutdown is None
    assert predict(WorkerTiming(grace=30)).shutdown is None


def test_the_pause_is_part_of_the_grace_period() -> None:
    stop = predict(WorkerTiming(shutdown=30, pre_stop=10, grace=35)).shutdown
    assert stop
    assert stop.races
    assert stop.margin == -5


def test_what_is_good_is_left_alone() -> None:
    for timing in (PROPOSED, WorkerTiming(lock=20, renew=5, stalled_interval=10, shutdown=60, pre_stop=5, grace=90)):
        assert propose_timing(timing, has_pre_stop=True) == timing


def test_where_nobody_can_wait_before_sigterm_no_pause_is_proposed() -> None:
    better = propose_timing(PUBLISHED, has_pre_stop=False)
    assert (better.pre_stop, better.shutdown, better.grace) == (0, 45, 60)


def test_a_long_shutdown_is_kept_and_gets_its_grace_period() -> None:
    better = propose_timing(
        WorkerTiming(lock=30, renew=5, stalled_interval=15, shutdown=600, grace=600), has_pre_stop=False
    )
    assert (better.shutdown, better.grace) == (600, 615)


def test_a_check_that_does_not_run_is_set_going() -> None:
    assert propose_timing(WorkerTiming(stalled_interval=0), has_pre_stop=False).stalled_interval == 15


def test_what_is_proposed_of_a_stop_is_whole_seconds() -> None:
    """A pod's grace period takes no others, and parseInt() cuts what n8n is told by the old name."""
    better = propose_timing(
        WorkerTiming(lock=20.5, renew=5, stalled_interval=10, shutdown=1, grace=30), has_pre_stop=True
    )
    assert (better.shutdown, better.grace) == (31, 51)


def test_n8n_from_2_41_on_waits_until_the_execution_of_a_failed_job_is_an_error() -> None:
    """Measured on 2.41.1: 25 to 30 s from the failure, at worst 111 s from the kill."""
    said = recovery(replace(PUBLISHED, max_stalled=0, error_after=30.0))
    assert (said.about, said.worst) == (120, 150)
    assert said.stages[-1] == PredictedStage(ERROR, 24, 30, 30)
    assert recovery(PUBLISHED).stages[-1].name == PICK_UP
