"""What the leader counts in the database: nothing twice, nothing missed, and little asked when nothing is new."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from recovery.actions.audit import audit_log
from recovery.actions.safety_limits import auto_retry_limits
from recovery.actions.safety_limits.auto_retry_limits import AutoRetryCandidate, AutoRetryResult
from recovery.actions.safety_limits.release import release
from recovery.domain.actions.types import Action, ActionCommand, Actor, ExpectedJob, Outcome
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.metrics.counters import BOUNDS, BreakerCounts, BudgetSpending, DurationHistogram, MetricCounters
from recovery.domain.safety_limits.circuit_breaker import ENOUGH, AutoRetryOutcome
from recovery.domain.safety_limits.retry_budget import RetryBudgetLimit
from recovery.domain.time_units import DAY, HOUR, MINUTE, SECOND
from recovery.metrics import action_counts, tally_store
from recovery.metrics.aggregator import MetricsAggregator
from recovery.models import Incident
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys
from tests.support.stores.stores import Store
from tests.support.stuck.watching import config_of, now_ms

NOW = 1_800_000_000_000
MAIL, ODD = QueueRef("main", "bull:mail"), QueueRef("main", "bull:\udcff")
pytestmark = pytest.mark.django_db(transaction=True)
Queries = Callable[[int], AbstractContextManager[Any]]


@pytest.fixture
def registry(tmp_path: Path, valkey: Store, state_store: Store) -> Iterator[ConnectionRegistry]:
    registry = ConnectionRegistry(config_of(tmp_path, state_store, {"main": valkey}))
    yield registry
    registry.close()


def incident(
    closed_at: int | None,
    took: int,
    by: str = "stalled-check",
    job: str = "1",
    queue: QueueRef = MAIL,
    *,
    proven: bool = True,
) -> None:
    end = closed_at or NOW
    Incident.objects.create(
        deployment=queue.deployment,
        base=queue.slug,
        job=job_key(job),
        kind="orphan",
        opened_at=end - took,
        proven_at=end - took if proven else None,
        closed_at=closed_at,
        resolved_by=by if closed_at else "",
    )


def act(*outcomes: Outcome, kind: str = "person", what: Action = Action.REQUEUE) -> None:
    ids = [str(number) for number in range(len(outcomes))]
    seen = tuple(ExpectedJob(id, JobState.ACTIVE) for id in ids)
    order = ActionCommand(what, MAIL, Actor(kind, "ada"), "it hung", seen)
    intent = audit_log.write_intent(order, {}, ids)
    audit_log.write_outcome(intent, order, {}, dict(zip(ids, outcomes, strict=True)))


def counted(found: DurationHistogram | None) -> int:
    return sum(found.counts) if found else 0


def test_durations_are_counted_by_who_resolved_the_incident(registry: ConnectionRegistry) -> None:
    for took in (400, 5_000, 61_000, 3 * DAY, -9):
        incident(NOW - 2 * HOUR, took)
    incident(NOW - MINUTE, 12_000, "operator")
    incident(NOW - MINUTE, 12_000, proven=False)
    incident(None, 5_000)
    found = MetricsAggregator(registry).run(NOW)
    took = dict(zip((*BOUNDS, "more"), found.durations["stalled-check"].counts, strict=True))
    assert {bound: count for bound, count in took.items() if count} == {1: 2, 5: 1, 120: 1, "more": 1}
    assert found.durations["stalled-check"].total_ms == 400 + 5_000 + 61_000 + 3 * DAY
    assert counted(found.durations["operator"]) == 1
    assert found.open == {"main": 1}


def test_what_is_settled_is_not_counted_again_and_what_is_pruned_stays(registry: ConnectionRegistry) -> None:
    for minutes in range(0, 180, 7):
        incident(NOW + minutes * MINUTE, 5_000, job=str(minutes))
    for minutes in range(0, 240, 13):
        now = NOW + minutes * MINUTE
        seen = Incident.objects.filter(closed_at__lte=now).count()
        Incident.objects.filter(closed_at__gt=now).update(proven_at=None)  # not yet
        found = MetricsAggregator(registry).run(now)
        Incident.objects.filter(closed_at__gt=now).update(proven_at=1)
        assert counted(found.durations.get("stalled-check")) == seen, minutes
    MetricsAggregator(registry).run(NOW + 5 * HOUR)
    Incident.objects.all().delete()
    assert counted(MetricsAggregator(registry).run(NOW + 6 * HOUR).durations["stalled-check"]) == 26


def test_an_end_that_was_proven_late_is_counted(registry: ConnectionRegistry) -> None:
    one = MetricsAggregator(registry)
    one.run(NOW)
    incident(NOW - 40 * MINUTE, 5_000)
    assert counted(one.run(NOW + MINUTE).durations["stalled-check"]) == 1


def test_actions_are_counted_by_act_outcome_and_who_did_it(registry: ConnectionRegistry) -> None:
    act(Outcome.DONE, Outcome.DONE, Outcome.REFUSED)
    act(Outcome.DONE, kind="scanner", what=Action.RETRY)
    audit_log.write_intent(
        ActionCommand(Action.FAIL, MAIL, Actor("shell", "ada"), "x", (ExpectedJob("9", JobState.ACTIVE),)), {}, ["9"]
    )
    audit_log.note(Actor("person", "ada"), "log in")
    one = MetricsAggregator(registry)
    expected = {
        ("requeue", "done", "person"): 2,
        ("requeue", "refused", "person"): 1,
        ("retry", "done", "scanner"): 1,
    }
    assert one.run(NOW).acts == expected
    assert one.run(NOW + 15 * SECOND).acts == expected
    act(Outcome.DONE, kind="scanner", what=Action.RETRY)
    other = MetricsAggregator(registry)
    assert other.run(NOW + 30 * SECOND).acts == expected | {("retry", "done", "scanner"): 2}


def test_a_long_audit_is_read_in_steps_and_only_its_end_when_nothing_was_counted(
    registry: ConnectionRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, small in (("FIRST", 12), ("AT_ONCE", 3), ("MOST", 2)):
        monkeypatch.setattr(action_counts, name, small)
    for _ in range(10):
        act(Outcome.DONE)
    one = MetricsAggregator(registry)
    assert [sum(one.run(NOW + step).acts.values()) for step in range(3)] == [3, 6, 6]


def test_what_cannot_be_published_is_counted_the_next_time(registry: ConnectionRegistry, state_store: Store) -> None:
    one = MetricsAggregator(registry, may=lambda: False)
    act(Outcome.DONE)
    one.run(NOW)
    assert state_store.client.get(state_keys.TALLIES) is None
    found = MetricsAggregator(registry).run(NOW + SECOND)
    assert sum(found.acts.values()) == 1
    assert tally_store.fetch(state_store.client) == found


def test_safety_limits_are_told_as_they_are_now(registry: ConnectionRegistry) -> None:
    ids = [str(number) for number in range(ENOUGH)]
    auto_retry_limits.admit_retries(ODD, dict.fromkeys(ids, AutoRetryCandidate("no route to host")), NOW)
    auto_retry_limits.settle_retries(
        ODD, dict.fromkeys(ids, AutoRetryResult(AutoRetryOutcome.FAILED, "no route to host")), NOW
    )
    auto_retry_limits.take_budget(ODD, 7, RetryBudgetLimit(10), NOW)
    one = MetricsAggregator(registry)
    found = one.run(NOW + SECOND)
    assert found.breakers == (BreakerCounts(ODD, open=2),)  # of its error, and of all
    assert found.spending == (BudgetSpending(ODD, 7, 10),)
    later = one.run(NOW + 30 * MINUTE)
    assert later.breakers == (BreakerCounts(ODD, half_open=2),)
    assert later.spending == (BudgetSpending(ODD, 0, 10),)
    auto_retry_limits.take_budget(ODD, 2, RetryBudgetLimit(10), NOW + 30 * MINUTE)
    assert one.run(NOW + 30 * MINUTE + SECOND).spending == (BudgetSpending(ODD, 2, 10),)


def test_a_quarantined_job_is_counted_until_a_person_forgives_it(registry: ConnectionRegistry) -> None:
    now = now_ms()
    for number in range(3):
        incident(now - number * HOUR - MINUTE, 5_000, queue=ODD)
    incident(now, 5_000, job="2", queue=ODD)
    one = MetricsAggregator(registry)
    assert one.run(now).quarantined == {ODD: 1}
    release(Actor("person", "ada", may_bulk=True), "quarantine", ODD.deployment, ODD.base, job_key("1"), "it is mended")
    assert one.run(now + SECOND).quarantined == {ODD: 1}  # once a minute
    assert one.run(now + MINUTE).quarantined == {}


def test_when_nothing_is_new_little_is_asked(
    registry: ConnectionRegistry, django_assert_max_num_queries: Queries
) -> None:
    for number in range(20):
        incident(NOW - 3 * HOUR, 5_000, job=str(number))
        act(Outcome.DONE)
        auto_retry_limits.take_budget(QueueRef("main", f"bull:{number}"), 1, RetryBudgetLimit(10), NOW)
    one = MetricsAggregator(registry)
    one.run(NOW)
    with django_assert_max_num_queries(8) as asked:
        one.run(NOW + 15 * SECOND)
    assert not [query["sql"] for query in asked.captured_queries if '"recovery_brakestate"."state"' in query["sql"]]


def test_everything_survives_the_way_through_the_store() -> None:
    found = MetricCounters(
        at=1,
        until=2,
        audited=3,
        settled={"": DurationHistogram((1,) * (len(BOUNDS) + 1), 5)},
        durations={"stalled-check": DurationHistogram()},
        acts={("fail", "done", "token"): 3},
        open={"main": 1},
        held=("main",),
        spending=(BudgetSpending(ODD, 1, 2),),
        breakers=(BreakerCounts(ODD, 1, 2, 3),),
        quarantined={ODD: 4},
    )
    assert tally_store.decode(tally_store.encode(found)) == found
    assert tally_store.decode(b"[]") is None
    assert tally_store.decode(b"x") is None
