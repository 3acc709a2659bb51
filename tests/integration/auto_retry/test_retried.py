"""How auto-retried jobs ended, and what failed jobs say of themselves, as they are read from a real store."""

from __future__ import annotations

import json

import pytest

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand, ExpectedJob, Outcome
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.domain.safety_limits.circuit_breaker import AutoRetryOutcome, PendingRetry
from recovery.reads.audit import manual_actions
from recovery.reads.auto_retry import failed_jobs, outcomes
from recovery.reads.auto_retry.outcomes import UNDER_WAY, AutoRetryResult
from recovery.reads.queues.job_lists import Queue
from tests.support.acting import ADMIN, Bench
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watching import now_ms

pytestmark = pytest.mark.django_db

BULL = LibraryVersion(QueueLibrary.BULL, 4, "4.16.4")


def queue(bench: Bench, flavour: LibraryVersion = BULLMQ) -> Queue:
    return Queue(bench.ref, flavour)


def ended(
    bench: Bench, *outs: PendingRetry, later: int = 0, flavour: LibraryVersion = BULLMQ
) -> dict[str, AutoRetryOutcome]:
    found = outcomes.find_outcomes(queue(bench, flavour), outs, now_ms() + later)
    return {id: end.ended for id, end in found.items()}


def test_a_job_that_waits_or_runs_has_not_ended(bench: Bench) -> None:
    bench.waiting("1")
    bench.held("2")
    bench.delayed("3")
    assert (
        ended(bench, PendingRetry("1", 1, 1), PendingRetry("2", 1, 1), PendingRetry("3", 1, 1), later=10 * UNDER_WAY)
        == {}
    )


def test_a_completed_job_has_succeeded(bench: Bench) -> None:
    bench.add("1")
    bench.client.zadd("bull:mail:completed", {"1": now_ms()})
    assert ended(bench, PendingRetry("1", 1, 1)) == {"1": AutoRetryOutcome.SUCCEEDED}


def test_a_later_failure_is_one_and_says_its_error(bench: Bench) -> None:
    bench.failed("1", at=2_000, reason="still down\nat line 7")
    assert outcomes.find_outcomes(queue(bench), [PendingRetry("1", 5_000, 1_000)], now_ms()) == {
        "1": AutoRetryResult(AutoRetryOutcome.FAILED, "still down")
    }


@pytest.mark.parametrize(("later", "expected"), [(0, {}), (UNDER_WAY + 1, {"1": AutoRetryOutcome.UNKNOWN})])
def test_the_failure_of_before_is_none_of_after(
    bench: Bench, later: int, expected: dict[str, AutoRetryOutcome]
) -> None:
    """Whoever sent it off may still be at it; after a while it never went."""
    at = now_ms()
    bench.failed("1", at=at - 1_000)
    assert ended(bench, PendingRetry("1", at, at - 1_000), later=later) == expected


def test_without_the_time_of_the_failure_the_clock_decides(bench: Bench) -> None:
    at = now_ms()
    bench.failed("1", at=at - 1_000)
    bench.failed("2", at=at + 1_000)
    found = ended(bench, PendingRetry("1", at), PendingRetry("2", at), later=2 * UNDER_WAY)
    assert found == {"1": AutoRetryOutcome.UNKNOWN, "2": AutoRetryOutcome.FAILED}


@pytest.mark.parametrize("flavour", [BULLMQ, BULL])
def test_a_job_that_is_gone_has_succeeded_and_was_removed(bench: Bench, flavour: LibraryVersion) -> None:
    assert ended(bench, PendingRetry("1", now_ms(), 1), flavour=flavour) == {"1": AutoRetryOutcome.SUCCEEDED}


@pytest.mark.parametrize(
    ("event", "how"), [("completed", AutoRetryOutcome.SUCCEEDED), ("failed", AutoRetryOutcome.FAILED)]
)
def test_the_queues_events_tell_of_a_job_that_is_gone(bench: Bench, event: str, how: AutoRetryOutcome) -> None:
    at = now_ms() - 1_000
    bench.client.xadd("bull:mail:events", {"event": event, "jobId": "1"})
    assert ended(bench, PendingRetry("1", at, 1)) == {"1": how}


@pytest.mark.parametrize("act", [Action.REMOVE, Action.CLEAN])
def test_a_job_that_somebody_removed_says_nothing(bench: Bench, act: Action) -> None:
    at = now_ms() - 1_000
    _noted(bench, act, "1")
    assert ended(bench, PendingRetry("1", at, 1)) == {"1": AutoRetryOutcome.UNKNOWN}


def test_a_job_that_others_may_have_pushed_out_says_nothing(bench: Bench) -> None:
    """Its queue keeps only so many failed ones, and all that are kept failed after it went."""
    at = now_ms() - 1_000
    bench.failed("2", at=at + 500)
    assert ended(bench, PendingRetry("1", at, 1)) == {"1": AutoRetryOutcome.UNKNOWN}
    bench.failed("3", at=at - 500)
    assert ended(bench, PendingRetry("1", at, 1)) == {"1": AutoRetryOutcome.SUCCEEDED}


def test_many_are_asked_in_one_go(bench: Bench) -> None:
    ids = [str(number) for number in range(500)]
    bench.failed(*ids[:250], at=2_000)
    bench.waiting(*ids[250:])
    found = ended(bench, *(PendingRetry(id, 5_000, 1_000) for id in ids))
    assert found == dict.fromkeys(ids[:250], AutoRetryOutcome.FAILED)


def test_only_what_is_failed_now_has_a_time_of_failure(bench: Bench) -> None:
    bench.failed("1", at=2_000)
    bench.waiting("2")
    assert outcomes.failed_at(queue(bench), ["1", "2", "3"]) == {"1": 2_000}


# -- what people did


def _noted(bench: Bench, act: Action, *ids: str, outcome: Outcome | None = Outcome.DONE, kind: str = "") -> None:
    actor = type(ADMIN)("scanner", kind, may_act=True) if kind else ADMIN
    order = ActionCommand(act, bench.ref, actor, "because", tuple(ExpectedJob(id, JobState.ACTIVE) for id in ids))
    intent = audit_log.write_intent(order, {}, ids)
    if outcome:
        audit_log.write_outcome(intent, order, {}, dict.fromkeys(ids, outcome))


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.UNKNOWN, None])
def test_what_may_have_been_cancelled_counts_as_cancelled(bench: Bench, outcome: Outcome | None) -> None:
    _noted(bench, Action.CANCEL, "1", outcome=outcome)
    assert manual_actions.jobs_ended_by_people(bench.ref, ["1", "2"]) == {"1"}


def test_what_was_refused_did_not_happen(bench: Bench) -> None:
    _noted(bench, Action.CANCEL, "1", outcome=Outcome.REFUSED)
    assert manual_actions.jobs_ended_by_people(bench.ref, ["1"]) == frozenset()


def test_a_person_who_sends_it_back_takes_that_back_and_a_scanner_does_not(bench: Bench) -> None:
    _noted(bench, Action.CANCEL, "1", "2", "3")
    _noted(bench, Action.RETRY, "1")
    _noted(bench, Action.RETRY, "2", kind="auto-retry")
    _noted(bench, Action.RETRY, "3", outcome=Outcome.UNKNOWN)
    assert manual_actions.jobs_ended_by_people(bench.ref, ["1", "2", "3"]) == {"2", "3"}
    _noted(bench, Action.FAIL, "1")
    assert "1" in manual_actions.jobs_ended_by_people(bench.ref, ["1"])


def test_another_queues_acts_are_its_own(bench: Bench) -> None:
    _noted(bench, Action.CANCEL, "1")
    bench.base = "bull:other"
    assert manual_actions.jobs_ended_by_people(type(bench.ref)("main", "bull:other"), ["1"]) == frozenset()


# -- failed jobs


def test_windows_come_oldest_first_and_end(bench: Bench) -> None:
    ids = [f"{number:03}" for number in range(120)]
    bench.failed(*ids)
    found, cursor = [], ""
    while True:
        part = failed_jobs.window(queue(bench), cursor)
        found += [one.row.id for one in part.jobs]
        cursor = part.next
        if not cursor:
            break
    assert (found, part.total) == (ids, 120)


@pytest.mark.parametrize(
    ("stack", "error"),
    [
        (json.dumps(["Error: first", "TypeError: last\n at x"]), "TypeError: last\n at x"),
        ("[]", ""),
        ("not json", "not json"),
        ('[1, {"a": 2}]', ""),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_the_last_attempts_stack_is_its_error(bench: Bench, stack: str, error: str) -> None:
    bench.failed("1", stacktrace=stack)
    (one,) = failed_jobs.window(queue(bench)).jobs
    assert (one.failure.error, one.unread) == (error, "")


@pytest.mark.parametrize(("field", "size"), [("stacktrace", 65_537), ("name", 20_000), ("failedReason", 20_000)])
def test_what_is_too_long_to_be_read_is_said(bench: Bench, field: str, size: int) -> None:
    bench.failed("1", **{field: "x" * size})
    bench.failed("2", at=now_ms())
    unread = {one.row.id: one.unread for one in failed_jobs.window(queue(bench)).jobs}
    assert "too long" in unread["1"]
    assert unread["2"] == ""


def test_many_long_stacks_are_read_in_turns(bench: Bench) -> None:
    bench.failed(*map(str, range(40)), stacktrace=json.dumps(["e" * 60_000]))
    assert [len(one.failure.error) for one in failed_jobs.window(queue(bench)).jobs] == [60_000] * 40


def test_a_ghost_among_the_failed_is_none(bench: Bench) -> None:
    bench.client.zadd("bull:mail:failed", {"1": 1_000})
    assert failed_jobs.window(queue(bench)).jobs == ()


def test_scores_that_are_no_time_stop_nobody(bench: Bench) -> None:
    bench.failed("1", "2")
    bench.client.zadd("bull:mail:failed", {"1": "+inf", "2": "-inf"})
    assert outcomes.failed_at(queue(bench), ["1", "2"]) == {"1": 0, "2": 0}
    assert ended(bench, PendingRetry("gone", 5, 5)) == {"gone": AutoRetryOutcome.SUCCEEDED}
