"""Which rescue the history offers, and for how long: from what was seen, without asking anybody."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord, graver
from recovery.domain.n8n.rescue import RescueOffer, RescueWay, offer
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import DAY, SECOND

NOW = 1_800_000_000_000
AT_RISK = LostExecutionRecord(
    1,
    "n8n",
    "4711",
    "wf",
    "Invoices",
    "webhook",
    QueueRef("main", "bull:jobs").job("7"),
    VerdictKind.WORKER_LOST,
    NOW - 20 * SECOND,
    LostExecutionOutcome.AT_RISK,
    started_at=NOW - 90 * SECOND,
    proven_at=NOW - 10 * SECOND,
    lock_ends_at=NOW + 40 * SECOND,
    copied_at=NOW - 20 * SECOND,
    copy_size=1000,
)


def offered(now: int = NOW, **changes: object) -> RescueOffer:
    return offer(replace(AT_RISK, **changes), now, check_interval=30 * SECOND, keep=7 * DAY)  # type: ignore[arg-type]


def test_while_the_lock_lasts_nothing_is_overwritten_and_a_check_and_a_minute_later_everything_is() -> None:
    found = offered()
    assert (found.way, found.is_open) == (RescueWay.RETRY, True)
    assert (found.first, found.last) == (NOW + 40 * SECOND, NOW + 100 * SECOND)
    assert "Possible for 40 s at least and 100 s at most." in found.sentence


def test_after_the_lock_ran_out_only_the_latest_moment_is_known() -> None:
    assert offered(NOW + 50 * SECOND).sentence.endswith("Possible for 50 s at most.")


def test_when_its_job_is_gone_n8n_waits_half_a_minute_at_most() -> None:
    found = offered(unheld_at=NOW - 10 * SECOND)
    assert (found.is_open, found.last) == (True, NOW + 20 * SECOND)
    assert found.sentence.endswith("Possible for 20 s at most.")


@pytest.mark.parametrize("changes", [{"verdict": VerdictKind.ABANDONED}, {"unheld_at": NOW - 60 * SECOND}])
def test_where_nobody_notices_it_no_end_is_told(changes: dict[str, object]) -> None:
    found = offered(**changes)
    assert (found.is_open, found.last) == (True, None)
    assert "No end of that is known" in found.sentence


def test_before_it_is_proven_it_is_told_and_not_offered() -> None:
    found = offered(verdict=VerdictKind.LATE, proven_at=None)
    assert (found.way, found.is_open) == (RescueWay.RETRY, False)
    assert "not proven yet" in found.sentence


def test_what_was_lost_can_be_restored_as_long_as_there_is_a_copy() -> None:
    found = offered(outcome=LostExecutionOutcome.LOST)
    assert (found.way, found.is_open, found.last) == (RescueWay.RESTORE, True, NOW - 20 * SECOND + 7 * DAY)
    assert "for 6 d 23 h" in found.sentence


def test_without_a_copy_it_is_said_why() -> None:
    found = offered(outcome=LostExecutionOutcome.LOST, copied_at=None, copy_size=None, copy_trouble="It was too large.")
    assert (found.way, found.is_open) == (RescueWay.NONE, False)
    assert found.sentence == "There is no copy of its data. It was too large."


@pytest.mark.parametrize("outcome", [LostExecutionOutcome.RESCUED, LostExecutionOutcome.RETRIED])
def test_what_runs_again_is_named(outcome: LostExecutionOutcome) -> None:
    found = offered(outcome=outcome, retried_as="4712")
    assert (found.way, found.sentence) == (RescueWay.NONE, "It ran again as execution 4712.")


def test_one_that_somebody_rescues_is_offered_again_after_two_minutes() -> None:
    assert not offered(claimed_at=NOW - 100 * SECOND).is_open
    assert offered(claimed_at=NOW - 130 * SECOND).is_open


def test_what_never_started_is_to_be_requeued() -> None:
    found = offered(started_at=None)
    assert (found.way, found.is_open) == (RescueWay.NONE, False)
    assert "requeue its job" in found.sentence


def test_a_verdict_never_becomes_better() -> None:
    assert graver(VerdictKind.ORPHAN, VerdictKind.LATE) is VerdictKind.ORPHAN
    assert graver(VerdictKind.LATE, VerdictKind.WORKER_LOST) is VerdictKind.WORKER_LOST
