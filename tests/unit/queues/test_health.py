from __future__ import annotations

import pytest

from recovery.domain.policies.types import PolicyScanner
from recovery.domain.queues.health import QueueProblem, QueueProblemKind, failure_rate, queue_problems
from recovery.domain.queues.types import QueueSample
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import VerdictKind as Verdict
from recovery.domain.time_units import MINUTE
from tests.support.stuck.samples import NOW, abandoned, counts, queue, rates, snapshot


def said(*queues: QueueSample, silent: str = "") -> list[str]:
    return [sentence(concern) for concern in queue_problems(snapshot(*queues, silent=silent))]


def sentence(concern: QueueProblem) -> str:
    return f"{concern.lead} {concern.name} {concern.rest}"


def test_a_healthy_queue_is_no_news() -> None:
    assert said(queue(counts=counts(waiting=400, active=5), oldest_waiting_at=NOW - MINUTE)) == []


def test_active_jobs_without_a_worker_are_told_as_lost() -> None:
    assert said(abandoned()) == [
        "9 jobs are active in bull:jobs and no worker is connected: whether they recover is not known yet."
    ]


def test_one_job_is_told_in_the_singular() -> None:
    assert said(abandoned(active=1)) == [
        "1 job is active in bull:jobs and no worker is connected: whether it recovers is not known yet."
    ]


def test_waiting_jobs_without_a_worker_are_told_with_their_age() -> None:
    lost = queue(counts=counts(waiting=3), workers=0, stalled_check_ttl=None, oldest_waiting_at=NOW - 4 * MINUTE)
    assert said(lost) == ["3 jobs wait in bull:mail and no worker is connected to take them. The oldest since 4 min."]


def test_a_paused_queue_is_not_a_backlog_without_workers() -> None:
    paused = queue(counts=counts(waiting=3), is_paused=True, workers=0, stalled_check_ttl=None)
    assert said(paused) == ["Queue bull:mail is paused while 3 jobs wait."]


def test_a_late_job_is_told() -> None:
    late = queue(counts=counts(waiting=40), oldest_waiting_at=NOW - 41 * MINUTE)
    assert said(late) == ["The oldest job of bull:mail has waited for 41 min. 2 workers for 40 jobs."]


def test_a_failing_queue_is_told() -> None:
    assert said(queue(rates=rates(1, 3))) == ["75 % of the jobs of bull:mail failed in the last hour: 180 of 240."]


def test_a_rate_of_a_few_jobs_says_nothing() -> None:
    assert said(queue(rates=rates(0, 1, minutes=3))) == []


@pytest.mark.parametrize(
    "unsure",
    [
        abandoned()._replace(workers=None),
        abandoned()._replace(stalled_check_ttl=5000),
        abandoned()._replace(counts=counts(active=None)),
        abandoned()._replace(error="NOPERM"),
        queue(counts=counts(waiting=9), workers=0, stalled_check_ttl=None, is_paused=None),
        queue(counts=counts(waiting=None), is_paused=True),
        queue(rates=rates(None, 9)),
    ],
    ids=["workers", "watchdog", "active", "unreadable", "paused", "backlog", "rates"],
)
def test_what_is_unknown_triggers_no_claim(unsure: QueueSample) -> None:
    assert said(unsure) == []


def test_old_numbers_trigger_no_claim() -> None:
    assert said(abandoned(), silent="main") == []


def test_the_same_trouble_is_told_once_with_its_worst_case() -> None:
    (only,) = queue_problems(snapshot(abandoned("bull:a", 2), abandoned("bull:b", 70), abandoned("bull:c", 5)))
    assert (only.name, only.others) == ("bull:b", 2)


def test_three_sentences_at_most_gravest_first() -> None:
    told = queue_problems(
        snapshot(
            queue("bull:late", counts=counts(waiting=1), oldest_waiting_at=NOW - 60 * MINUTE),
            queue("bull:paused", counts=counts(waiting=1), is_paused=True),
            queue("bull:failing", rates=rates(0, 9)),
            abandoned(),
        )
    )
    assert [concern.kind for concern in told] == [
        QueueProblemKind.ABANDONED,
        QueueProblemKind.FAILING,
        QueueProblemKind.PAUSED,
    ]


def test_a_queue_speaks_once() -> None:
    both = abandoned()._replace(counts=counts(active=2, waiting=5))
    assert said(both) == [
        "2 jobs are active in bull:jobs and no worker is connected: whether they recover is not known yet. 5 more wait."
    ]


@pytest.mark.parametrize(("completed", "failed", "rate"), [(3, 1, 0.25), (0, 0, None), (None, 4, None), (5, 0, 0.0)])
def test_a_failure_rate_needs_both_numbers(completed: int | None, failed: int | None, rate: float | None) -> None:
    assert failure_rate(queue(rates=rates(completed, failed))) == rate


def test_a_chosen_deployment_hears_of_its_own_only() -> None:
    world = snapshot(abandoned("bull:a"), abandoned("bull:b", 70, deployment="eu"))
    assert [concern.name for concern in queue_problems(world, deployment="main")] == ["bull:a"]


@pytest.mark.parametrize(
    ("workers", "why"),
    [
        (0, "while no worker is connected"),
        (2, "because no worker runs the stalled check"),
        (None, "because no worker runs the stalled check"),
    ],
)
def test_what_a_look_has_proven_is_said_in_its_words(workers: int | None, why: str) -> None:
    one = queue("bull:jobs", counts=counts(active=20), workers=workers, stalled_check_ttl=None)
    inbox = StuckInbox(NOW, queues=(StuckTally(one.ref, {Verdict.ABANDONED: 12}),))
    assert [sentence(concern) for concern in queue_problems(snapshot(one), inbox=inbox)] == [
        f"12 jobs are abandoned in bull:jobs {why}: nothing will ever recover them."
    ]


@pytest.mark.parametrize(
    ("rescued", "said", "tone"),
    [
        (
            12,
            "stale-check recovers them within 27 min.",
            "warn",
        ),
        (
            11,
            "nothing will ever recover 1 of them.",
            "stuck",
        ),
    ],
)
def test_nothing_will_rescue_is_said_of_those_that_no_scanner_takes(rescued: int, said: str, tone: str) -> None:
    one = queue("bull:jobs", counts=counts(active=20), workers=0, stalled_check_ttl=None)
    ahead = QueueOutlook(rescued, rescued, NOW + 27 * MINUTE, PolicyScanner.STALE_CHECK)
    inbox = StuckInbox(NOW, queues=(StuckTally(one.ref, {Verdict.ABANDONED: 12}, outlook=ahead),))
    (told,) = queue_problems(snapshot(one), inbox=inbox)
    where = "12 jobs are abandoned in bull:jobs while no worker is connected"
    assert (sentence(told), told.tone) == (f"{where}: {said}", tone)


def test_where_a_scanner_would_put_them_back_active_jobs_without_a_worker_are_no_loss() -> None:
    one = queue("bull:jobs", counts=counts(active=1), workers=0, stalled_check_ttl=None)
    ahead = QueueOutlook(0, 1, NOW + 35_000, PolicyScanner.ORPHAN_WATCH)
    inbox = StuckInbox(NOW, queues=(StuckTally(one.ref, {Verdict.WORKER_LOST: 1}, outlook=ahead),))
    (told,) = queue_problems(snapshot(one), inbox=inbox)
    assert (
        sentence(told)
        == "1 job is active in bull:jobs and no worker is connected: orphan-watch recovers it within 35 s."
    )
