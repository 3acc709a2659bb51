"""How relaunched jobs ended, and what failed jobs say of themselves, as they are read from a real store."""

from __future__ import annotations

import json

import pytest

from recovery.actions import audit
from recovery.domain.acting import Act, Order, Outcome, Seen
from recovery.domain.breaker import Ended, Out
from recovery.domain.counts import Flavour, Library
from recovery.domain.jobs import State
from recovery.reads import acts, failed, relaunched
from recovery.reads.lists import Queue
from recovery.reads.relaunched import UNDER_WAY, End
from tests.acting import ADMIN, Bench
from tests.samples import BULLMQ
from tests.watching import now_ms

pytestmark = pytest.mark.django_db

BULL = Flavour(Library.BULL, 4, "4.16.4")


def queue(bench: Bench, flavour: Flavour = BULLMQ) -> Queue:
    return Queue(bench.ref, flavour)


def ended(bench: Bench, *outs: Out, later: int = 0, flavour: Flavour = BULLMQ) -> dict[str, Ended]:
    found = relaunched.ends(queue(bench, flavour), outs, now_ms() + later)
    return {id: end.ended for id, end in found.items()}


def test_a_job_that_waits_or_runs_has_not_ended(bench: Bench) -> None:
    bench.waiting("1")
    bench.held("2")
    bench.delayed("3")
    assert ended(bench, Out("1", 1, 1), Out("2", 1, 1), Out("3", 1, 1), later=10 * UNDER_WAY) == {}


def test_a_completed_job_has_succeeded(bench: Bench) -> None:
    bench.add("1")
    bench.client.zadd("bull:mail:completed", {"1": now_ms()})
    assert ended(bench, Out("1", 1, 1)) == {"1": Ended.SUCCEEDED}


def test_a_later_failure_is_one_and_says_its_error(bench: Bench) -> None:
    bench.failed("1", at=2_000, reason="still down\nat line 7")
    assert relaunched.ends(queue(bench), [Out("1", 5_000, 1_000)], now_ms()) == {"1": End(Ended.FAILED, "still down")}


@pytest.mark.parametrize(("later", "expected"), [(0, {}), (UNDER_WAY + 1, {"1": Ended.UNKNOWN})])
def test_the_failure_of_before_is_none_of_after(bench: Bench, later: int, expected: dict[str, Ended]) -> None:
    """Whoever sent it off may still be at it; after a while it never went."""
    at = now_ms()
    bench.failed("1", at=at - 1_000)
    assert ended(bench, Out("1", at, at - 1_000), later=later) == expected


def test_without_the_time_of_the_failure_the_clock_decides(bench: Bench) -> None:
    at = now_ms()
    bench.failed("1", at=at - 1_000)
    bench.failed("2", at=at + 1_000)
    found = ended(bench, Out("1", at), Out("2", at), later=2 * UNDER_WAY)
    assert found == {"1": Ended.UNKNOWN, "2": Ended.FAILED}


@pytest.mark.parametrize("flavour", [BULLMQ, BULL])
def test_a_job_that_is_gone_has_succeeded_and_was_removed(bench: Bench, flavour: Flavour) -> None:
    assert ended(bench, Out("1", now_ms(), 1), flavour=flavour) == {"1": Ended.SUCCEEDED}


@pytest.mark.parametrize(("event", "how"), [("completed", Ended.SUCCEEDED), ("failed", Ended.FAILED)])
def test_the_queues_events_tell_of_a_job_that_is_gone(bench: Bench, event: str, how: Ended) -> None:
    at = now_ms() - 1_000
    bench.client.xadd("bull:mail:events", {"event": event, "jobId": "1"})
    assert ended(bench, Out("1", at, 1)) == {"1": how}


@pytest.mark.parametrize("act", [Act.REMOVE, Act.CLEAN])
def test_a_job_that_somebody_removed_says_nothing(bench: Bench, act: Act) -> None:
    at = now_ms() - 1_000
    _noted(bench, act, "1")
    assert ended(bench, Out("1", at, 1)) == {"1": Ended.UNKNOWN}


def test_a_job_that_others_may_have_pushed_out_says_nothing(bench: Bench) -> None:
    """Its queue keeps only so many failed ones, and all that are kept failed after it went."""
    at = now_ms() - 1_000
    bench.failed("2", at=at + 500)
    assert ended(bench, Out("1", at, 1)) == {"1": Ended.UNKNOWN}
    bench.failed("3", at=at - 500)
    assert ended(bench, Out("1", at, 1)) == {"1": Ended.SUCCEEDED}


def test_many_are_asked_in_one_go(bench: Bench) -> None:
    ids = [str(number) for number in range(500)]
    bench.failed(*ids[:250], at=2_000)
    bench.waiting(*ids[250:])
    found = ended(bench, *(Out(id, 5_000, 1_000) for id in ids))
    assert found == dict.fromkeys(ids[:250], Ended.FAILED)


def test_only_what_is_failed_now_has_a_time_of_failure(bench: Bench) -> None:
    bench.failed("1", at=2_000)
    bench.waiting("2")
    assert relaunched.failed_at(queue(bench), ["1", "2", "3"]) == {"1": 2_000}


# -- what people did


def _noted(bench: Bench, act: Act, *ids: str, outcome: Outcome | None = Outcome.DONE, kind: str = "") -> None:
    actor = type(ADMIN)("scanner", kind, may_act=True) if kind else ADMIN
    order = Order(act, bench.ref, actor, "because", tuple(Seen(id, State.ACTIVE) for id in ids))
    intent = audit.write_intent(order, {}, ids)
    if outcome:
        audit.write_outcome(intent, order, {}, dict.fromkeys(ids, outcome))


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.UNKNOWN, None])
def test_what_may_have_been_cancelled_counts_as_cancelled(bench: Bench, outcome: Outcome | None) -> None:
    _noted(bench, Act.CANCEL, "1", outcome=outcome)
    assert acts.ended(bench.ref, ["1", "2"]) == {"1"}


def test_what_was_refused_did_not_happen(bench: Bench) -> None:
    _noted(bench, Act.CANCEL, "1", outcome=Outcome.REFUSED)
    assert acts.ended(bench.ref, ["1"]) == frozenset()


def test_a_person_who_sends_it_back_takes_that_back_and_a_scanner_does_not(bench: Bench) -> None:
    _noted(bench, Act.CANCEL, "1", "2", "3")
    _noted(bench, Act.RETRY, "1")
    _noted(bench, Act.RETRY, "2", kind="auto-retry")
    _noted(bench, Act.RETRY, "3", outcome=Outcome.UNKNOWN)
    assert acts.ended(bench.ref, ["1", "2", "3"]) == {"2", "3"}
    _noted(bench, Act.FAIL, "1")
    assert "1" in acts.ended(bench.ref, ["1"])


def test_another_queues_acts_are_its_own(bench: Bench) -> None:
    _noted(bench, Act.CANCEL, "1")
    bench.base = "bull:other"
    assert acts.ended(type(bench.ref)("main", "bull:other"), ["1"]) == frozenset()


# -- failed jobs


def test_windows_come_oldest_first_and_end(bench: Bench) -> None:
    ids = [f"{number:03}" for number in range(120)]
    bench.failed(*ids)
    found, cursor = [], ""
    while True:
        part = failed.window(queue(bench), cursor)
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
    (one,) = failed.window(queue(bench)).jobs
    assert (one.failure.error, one.unread) == (error, "")


@pytest.mark.parametrize(("field", "size"), [("stacktrace", 65_537), ("name", 20_000), ("failedReason", 20_000)])
def test_what_is_too_long_to_be_read_is_said(bench: Bench, field: str, size: int) -> None:
    bench.failed("1", **{field: "x" * size})
    bench.failed("2", at=now_ms())
    unread = {one.row.id: one.unread for one in failed.window(queue(bench)).jobs}
    assert "too long" in unread["1"]
    assert unread["2"] == ""


def test_many_long_stacks_are_read_in_turns(bench: Bench) -> None:
    bench.failed(*map(str, range(40)), stacktrace=json.dumps(["e" * 60_000]))
    assert [len(one.failure.error) for one in failed.window(queue(bench)).jobs] == [60_000] * 40


def test_a_ghost_among_the_failed_is_none(bench: Bench) -> None:
    bench.client.zadd("bull:mail:failed", {"1": 1_000})
    assert failed.window(queue(bench)).jobs == ()


def test_scores_that_are_no_time_stop_nobody(bench: Bench) -> None:
    bench.failed("1", "2")
    bench.client.zadd("bull:mail:failed", {"1": "+inf", "2": "-inf"})
    assert relaunched.failed_at(queue(bench), ["1", "2"]) == {"1": 0, "2": 0}
    assert ended(bench, Out("gone", 5, 5)) == {"gone": Ended.SUCCEEDED}
