"""What stops the auto-retrying, over a real store and a real database, under a clock that the tests move."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from recovery.actions.audit import audit_log
from recovery.actions.safety_limits import auto_retry_limits
from recovery.domain.actions.types import Action
from recovery.domain.jobs import JobState
from recovery.domain.safety_limits.circuit_breaker import ENOUGH
from recovery.domain.safety_limits.retry_budget import FLOOR, limit
from recovery.domain.time_units import DAY
from recovery.errors import NotRecorded
from recovery.models import AuditEntry, PolicyLayer, ScannerPause, ScanRun
from recovery.reads.auto_retry.outcomes import UNDER_WAY
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import BREAKER, SafetyLimitScope
from recovery.scanners.auto_retry.scanner import WELL_AGAIN
from tests.support.stuck.auto_retrying import ARMED, AutoRetrying, done, noted

pytestmark = pytest.mark.django_db


def test_no_more_go_at_once_than_can_be_judged(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(100)))
    jobs.completes(100_000)
    report = jobs.run()
    assert len(done(report)) == ENOUGH
    assert len(jobs.ids(JobState.WAITING)) == ENOUGH


def test_a_failing_upstream_opens_the_breaker_which_shows_the_error(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(100)))
    jobs.completes(100_000)
    jobs.works = lambda _: False
    report = jobs.run()
    went = len(done(report))
    assert ENOUGH <= went < 2 * ENOUGH, "what went while the last of the twenty were judged"
    (said,) = [hold for hold in report.holds if "for “no route to host”" in hold]
    assert "Open for" in said
    assert "still no route to host" in said
    assert done(jobs.run()) == []


def test_a_probe_that_succeeds_closes_it_and_the_rest_follows(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(100)))
    jobs.completes(100_000)
    jobs.works = lambda _: False
    jobs.run()
    before = len(jobs.pasts())
    jobs.clock.pass_by(6 * 60_000)
    jobs.works = None
    assert len(done(jobs.run())) == 1, "one probe"
    jobs.works = lambda _: True
    jobs.clock.pass_by(1000)
    jobs.follow()
    order = ScanRun.objects.get()
    assert (order.status, order.base, order.reason) == ("waiting", jobs.ref.slug, WELL_AGAIN)
    report = jobs.run(queue=jobs.ref)
    assert not [hold for hold in report.holds if "Breaker" in hold]
    assert len(jobs.pasts()) > before + ENOUGH
    assert jobs.ids(JobState.FAILED) == []


def test_a_probe_that_fails_makes_the_next_pause_longer(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(60)))
    jobs.completes(100_000)
    jobs.works = lambda _: False
    jobs.run()
    jobs.clock.pass_by(6 * 60_000)
    first = jobs.run()
    assert len(done(first)) == 1
    assert "A probe failed too" in " ".join(first.holds)
    jobs.clock.pass_by(4 * 60_000)
    assert done(jobs.run()) == []


def test_another_error_is_not_held_by_the_breaker_of_the_first(jobs: AutoRetrying) -> None:
    """As long as the queue as a whole does not fail."""
    others = ("out of paper", "no ink", "door open", "too hot", "jammed")
    for number in range(60):
        at = 9_000_000 - 10 * number
        jobs.fails(f"a{number}", ago=at)
        for place, reason in enumerate(others, 1):
            jobs.fails(f"{reason}{number}", reason=reason, ago=at - place)
    jobs.completes(100_000)
    jobs.works = lambda id: not id.startswith("a")
    report = jobs.run()
    assert sum(not id.startswith("a") for id in done(report)) == 5 * 60
    assert sum(id.startswith("a") for id in done(report)) < 2 * ENOUGH


def test_the_budget_is_never_exceeded_in_any_minute(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(200)))
    jobs.works = lambda _: True
    report = jobs.run()
    assert len(done(report)) >= 4 * FLOOR
    assert jobs.most_in_a_minute() == FLOOR
    assert "10 a minute" in " ".join(report.holds)
    jobs.scanner = jobs.begin()
    jobs.run()
    assert jobs.most_in_a_minute() == FLOOR


def test_a_busy_queue_has_a_tenth_of_what_it_completes(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(300)))
    jobs.completes(30_000)
    jobs.works = lambda _: True
    jobs.run()
    assert jobs.most_in_a_minute() == 50, jobs.pasts()


def test_one_run_takes_no_more_than_its_policy_says(make: Callable[..., AutoRetrying]) -> None:
    jobs = make(ARMED.replace("most = 1000", "most = 3"))
    jobs.fails(*map(str, range(9)))
    report = jobs.run()
    assert done(report) == ["0", "1", "2"]
    assert "the rest waits" in " ".join(report.holds)
    assert done(jobs.run()) == ["3", "4", "5"]


def test_a_job_goes_three_times_and_then_waits_for_days(jobs: AutoRetrying) -> None:
    jobs.fails("1")
    jobs.works = lambda _: False
    went = 0
    for _ in range(6):
        went += len(done(jobs.run()))
        jobs.clock.pass_by(600_000)
        jobs.follow()
    assert went == 3
    assert "3 times within 3 d" in jobs.run().finds[-1].policy


def test_an_id_that_is_used_again_is_not_used_up_by_the_job_before_it(make: Callable[..., AutoRetrying]) -> None:
    jobs = make(ARMED + '[policy.backoff."*"]\nattempts = 1')
    jobs.fails("daily")
    assert done(jobs.run()) == ["daily"]
    jobs.client.delete("bull:mail:wait")
    jobs.fails("daily", timestamp=jobs.clock() - 1800_000)
    assert done(jobs.run()) == []
    jobs.clock.pass_by(DAY)
    jobs.follow()
    jobs.fails("daily", timestamp=jobs.clock() - 3_600_000)
    assert done(jobs.run()) == ["daily"]


def test_every_auto_retry_of_a_new_life_counts_from_its_beginning(make: Callable[..., AutoRetrying]) -> None:
    jobs = make(ARMED + '[policy.backoff."*"]\nattempts = 2')
    jobs.fails("daily")
    assert done(jobs.run()) == ["daily"]
    jobs.client.delete("bull:mail:wait")
    jobs.clock.pass_by(DAY)
    jobs.follow()
    jobs.fails("daily", timestamp=jobs.clock() - 3_600_000)
    jobs.works = lambda _: False
    assert done(jobs.run()) == ["daily"]
    jobs.clock.pass_by(1_000)  # it fails
    jobs.clock.pass_by(600_000)
    jobs.follow()
    assert done(jobs.run()) == ["daily"], "its second, not its third"


def test_a_redis_pause_holds_it_and_says_why(jobs: AutoRetrying) -> None:
    jobs.fails("1")
    jobs.held = ("The store was started 3 s ago.",)
    report = jobs.run()
    assert done(report) == []
    assert report.holds == ("The store was started 3 s ago.",)
    assert jobs.pasts() == []


def test_who_leads_no_more_stops_within_a_step(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(50)))

    def lose(_: str) -> bool:
        jobs.leads = False
        return True

    jobs.works = lose
    report = jobs.run()
    assert len(done(report)) == FLOOR


def test_a_pause_counts_within_seconds(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(50)))

    def pause(_: str) -> bool:
        ScannerPause.objects.get_or_create(pk="auto-retry", defaults={"by": "ada", "at": 1})
        return True

    jobs.works = pause
    report = jobs.run()
    assert len(done(report)) == FLOOR
    assert "paused by ada" in " ".join(report.holds)


def test_a_policy_that_is_edited_counts_within_seconds(jobs: AutoRetrying) -> None:
    jobs.fails(*map(str, range(50)))

    def edit(_: str) -> bool:
        written = '{"auto_retry": {"mode": "dry-run"}}'
        PolicyLayer.objects.get_or_create(deployment="", base="", defaults={"written": written, "by": "ada", "at": 1})
        return True

    jobs.works = edit
    assert len(done(jobs.run())) == FLOOR


def test_what_was_refused_counts_neither_in_its_past_nor_in_the_budget(
    jobs: AutoRetrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.fails("1", "2")

    def refuse(*_: object, **__: object) -> int:
        raise NotRecorded("The audit cannot be written, so nothing was changed.")

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "write_intent", refuse)
        report = jobs.run()
    assert (report.refused, jobs.ids(JobState.FAILED)) == (2, ["1", "2"])
    assert jobs.pasts() == []
    assert auto_retry_limits.budget_free_at(jobs.ref, limit(None), FLOOR, jobs.clock()) == jobs.clock()
    assert auto_retry_limits.unsettled_retries(now=jobs.clock()) == {}
    jobs.scanner = jobs.begin()
    assert done(jobs.run()) == ["1", "2"]


def test_what_went_stays_spent_when_nobody_can_note_what_stayed(
    jobs: AutoRetrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.fails(*map(str, range(FLOOR)))
    jobs.completes(60 * FLOOR)
    note = auto_retry_limits.admit_retries

    def lose_one(*given: object, **more: object) -> tuple[str, ...]:
        jobs.client.zrem("bull:mail:failed", "3")
        jobs.client.delete("bull:mail:3")
        return note(*given, **more)  # type: ignore[arg-type] # as it was called

    def refuse(*_: object) -> None:
        raise NotRecorded("Too many processes change the safety limits at the same moment.")

    monkeypatch.setattr(auto_retry_limits, "admit_retries", lose_one)
    monkeypatch.setattr(auto_retry_limits, "withdraw_retries", refuse)
    jobs.run()
    assert len(jobs.ids(JobState.WAITING)) == FLOOR - 1
    assert auto_retry_limits.take_budget(jobs.ref, FLOOR, limit(60 * FLOOR), jobs.clock()).count <= 1


def test_one_that_failed_otherwise_while_it_waited_for_the_budget_stops_nobody(jobs: AutoRetrying) -> None:
    ids = [f"{number:02}" for number in range(40)]
    jobs.fails(*ids)
    jobs.works = lambda _: True
    jobs.clock._meanwhile = lambda: (_fails_otherwise(jobs, "25"), jobs._work())[1]
    assert sorted(done(jobs.run())) == ids


def _fails_otherwise(jobs: AutoRetrying, id: str) -> None:
    """Somebody retried it, and it failed at once."""
    if (
        jobs.client.hget(f"bull:mail:{id}", "failedReason") == b"no route to host"
        and len(jobs.ids(JobState.FAILED)) < 40
    ):
        jobs.fail_again(id, "out of paper")


def test_a_scheduler_that_dies_in_the_middle_is_followed_by_one_that_knows_what_went(
    jobs: AutoRetrying, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right behind the script, before anything of it was written down."""
    jobs.fails("1")

    _killed(jobs, monkeypatch, "write_outcome")
    assert jobs.ids(JobState.WAITING) == ["1"]
    assert len(jobs.pasts()) == 1
    jobs.scanner = jobs.begin()
    jobs.works = lambda _: False
    jobs.clock.pass_by(600_000)
    jobs.follow()
    (breaker,) = [
        one for key, one in limit_rows.values_by_key(BREAKER, SafetyLimitScope.of(jobs.ref)).items() if not key
    ]
    assert breaker.tally(jobs.clock()) == (1, 1)
    jobs.clock.pass_by(60_000)
    assert len(done(jobs.run())) == 1
    assert len(jobs.pasts()) == 2


class Killed(BaseException):
    pass


def _killed(jobs: AutoRetrying, monkeypatch: pytest.MonkeyPatch, at: str) -> None:
    """The run ends where the audit is to do this."""

    def die(*_: object, **__: object) -> int:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, at, die)
        with pytest.raises(Killed):
            jobs.run()


def test_what_never_went_is_not_waited_for(jobs: AutoRetrying, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the note and the act: its past counts it, and no breaker does."""
    jobs.fails("1")

    _killed(jobs, monkeypatch, "write_intent")
    jobs.scanner = jobs.begin()
    assert jobs.follow() == 1, "it may still go"
    jobs.clock.pass_by(UNDER_WAY + 1000)
    jobs.follow()
    assert jobs.follow() == 0
    (breaker,) = [
        one for key, one in limit_rows.values_by_key(BREAKER, SafetyLimitScope.of(jobs.ref)).items() if not key
    ]
    assert breaker.tally(jobs.clock()) == (0, 0)
    assert len(jobs.pasts()) == 1


def test_a_queue_that_is_gone_leaves_nothing_out(jobs: AutoRetrying) -> None:
    jobs.fails("1")
    assert done(jobs.run()) == ["1"]
    jobs.client.flushall()
    jobs.snapshot = None
    assert jobs.scanner.follow(jobs.clock()) == 1
    assert auto_retry_limits.unsettled_retries(now=jobs.clock()) == {}


def test_what_was_left_over_is_the_first_of_the_next_run(make: Callable[..., AutoRetrying]) -> None:
    jobs = make(ARMED.replace("most = 1000", "most = 120"))
    ids = [f"{number:03}" for number in range(260)]
    jobs.fails(*ids)
    jobs.completes(100_000)
    jobs.works = lambda _: True
    went = [id for _ in range(3) for id in done(jobs.run())]
    assert went == ids


def test_a_store_that_does_not_answer_is_a_fault_and_costs_the_others_nothing(jobs: AutoRetrying) -> None:
    jobs.fails("1")
    jobs.snapshot = jobs.look()
    jobs.queues.pause()
    report = jobs.scanner.run(jobs.clock())
    jobs.queues.resume()
    assert (done(report), len(report.faults)) == ([], 1)
    assert jobs.pasts() == []


def test_what_was_cancelled_while_it_waited_for_the_budget_stays(jobs: AutoRetrying) -> None:
    ids = [f"{number:02}" for number in range(20)]
    jobs.fails(*ids)

    def cancel(_: str) -> bool:
        if "15" in jobs.ids(JobState.FAILED) and not AuditEntry.objects.filter(act=Action.CANCEL).exists():
            noted(jobs, Action.CANCEL, "15")
        return True

    jobs.works = cancel
    assert done(jobs.run()) == [id for id in ids if id != "15"]
