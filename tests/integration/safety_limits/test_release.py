"""A person releases a safety limit: with the right to it, a reason and a note in the audit, and what follows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from django.db import OperationalError

from recovery.actions.audit import audit_log
from recovery.actions.safety_limits import auto_retry_limits
from recovery.actions.safety_limits.auto_retry_limits import AutoRetryCandidate, AutoRetryResult
from recovery.actions.safety_limits.compare_and_set import swap_one
from recovery.domain.actions.types import Actor
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.auto_retry.rules import RETRY_CAP, RetryHistory
from recovery.domain.identifiers import QueueRef
from recovery.domain.safety_limits.circuit_breaker import ENOUGH, AutoRetryOutcome, BreakerStage, CircuitBreaker
from recovery.domain.safety_limits.redis_pause import RedisObservation, RedisPause, RedisPauseTrigger
from recovery.domain.safety_limits.retry_budget import RetryBudgetLimit
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import DAY, HOUR, SECOND
from recovery.errors import BadOrder, Forbidden, Missing, NotRecorded
from recovery.models import AuditEntry, BrakeState, Incident
from recovery.reads.safety_limits import queries as book
from recovery.reads.safety_limits.limit_rows import BREAKER, REDIS_PAUSE, RETRY_HISTORY, SafetyLimitScope, breaker_key
from recovery.reads.safety_limits.queries import SafetyLimits
from recovery.reads.stuck import incidents
from tests.support.acting import ADMIN, MAIL, OPERATOR, Bench, now_ms
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import Make, orphan, requeued

REFUSED = "connect ECONNREFUSED #"
OTHER = QueueRef("main", "bull:other")
REASON = "the mail server is back"


@pytest.fixture(autouse=True)
def _database(transactional_db: None) -> None:
    """Audit entries are committed before anything is done, so no test may stand in a transaction of its own."""


def released(kind: str, key: str = "", *, queue: QueueRef = MAIL, actor: Actor = ADMIN, reason: str = REASON) -> int:
    base = "" if kind == REDIS_PAUSE.name else queue.base
    return auto_retry_limits.release(actor, kind, queue.deployment, base, key, reason)


def note(number: int) -> tuple[str, str, dict[str, str]]:
    entry = AuditEntry.objects.get(number=number)
    return entry.actor, entry.reason, json.loads(entry.body)


def trip() -> None:
    ids = [str(number) for number in range(ENOUGH)]
    auto_retry_limits.admit_retries(MAIL, dict.fromkeys(ids, AutoRetryCandidate(REFUSED)))
    auto_retry_limits.settle_retries(
        MAIL, dict.fromkeys(ids, AutoRetryResult(AutoRetryOutcome.FAILED, "connect ECONNREFUSED, password=hunter22"))
    )


def hold() -> None:
    swap_one(
        REDIS_PAUSE, SafetyLimitScope("main"), lambda pause, at: pause.seen(RedisObservation(at, active=400, lost=380))
    )


def orphaned(id: str, *ago: int, queue: QueueRef = MAIL, is_open: bool = False) -> None:
    """Incidents of one job, each so long ago."""
    for one in ago:
        at = now_ms() - one
        Incident.objects.create(
            deployment=queue.deployment,
            base=queue.slug,
            job=job_key(id),
            kind="orphan",
            opened_at=at,
            proven_at=at,
            closed_at=None if is_open else at + 1,
        )


def now_held(bench: Bench) -> SafetyLimits:
    return book.all_limits(now_ms())


@pytest.fixture
def quarantined() -> str:
    orphaned("7", HOUR, 2 * HOUR, 3 * HOUR)
    return job_key("7")


# -- who may, and why


def test_it_takes_the_right_to_act_in_bulk(quarantined: str) -> None:
    with pytest.raises(Forbidden, match="needs the permission to act in bulk"):
        released("quarantine", quarantined, actor=OPERATOR)
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(("reason", "says"), [("  ", "Give a reason"), ("x" * 501, "too long")])
def test_it_takes_a_reason(quarantined: str, reason: str, says: str) -> None:
    with pytest.raises(BadOrder, match=says):
        released("quarantine", quarantined, reason=reason)


@pytest.mark.parametrize("kind", ["store", "breaker", "past", "quarantine"])
def test_what_is_not_there_is_not_released(kind: str) -> None:
    with pytest.raises(Missing):
        released(kind, "7")
    assert not AuditEntry.objects.exists()


def test_what_frees_itself_is_no_safety_limit_to_release() -> None:
    auto_retry_limits.take_budget(MAIL, 1, RetryBudgetLimit(10))
    with pytest.raises(BadOrder, match="no safety limit of the kind budget"):
        released("budget")


def test_without_its_note_nothing_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> int:
        raise OperationalError

    trip()
    monkeypatch.setattr(audit_log, "_append", broken)
    with pytest.raises(NotRecorded):
        released(BREAKER.name)
    assert [one.stage for one in book.limits_of_queue(MAIL, now_ms()).breakers] == [
        BreakerStage.OPEN,
        BreakerStage.OPEN,
    ]


# -- each of them


def test_a_redis_pause_lets_go_and_says_who_did_it(bench: Bench) -> None:
    hold()
    (store,) = now_held(bench).holding
    assert [one.why for one in store.holds] == [RedisPauseTrigger.LOCKS]
    number = released(REDIS_PAUSE.name)
    (words,) = store.words
    who, reason, noted = note(number)
    assert (who, reason) == ("ada", REASON)
    before_its_minutes, _, _ = words.partition(" paused for ")
    assert noted.pop("was").startswith(before_its_minutes)
    assert noted == {"kind": "store", "deployment": "main", "key": ""}
    assert AuditEntry.objects.get(number=number).base == ""
    (store,) = now_held(bench).stores
    assert not store.is_holding
    assert store.released_by == "ada"
    assert re.fullmatch(r"Not active\. ada released it \d s ago\.", *store.words)


def test_a_breaker_closes_and_counts_anew(bench: Bench) -> None:
    trip()
    every, own = sorted(book.limits_of_queue(MAIL, now_ms()).breakers, key=lambda one: one.key)
    assert (every.is_for_all, own.is_for_all, own.key) == (True, False, breaker_key(REFUSED))
    assert (own.signature, own.failed, own.of, own.is_open) == (REFUSED, 20, 20, True)
    assert "hunter22" not in own.words + own.error
    number = released(BREAKER.name, own.key)
    _, _, told = note(number)
    assert re.match(
        r"Open for \d s: 20 of 20 auto-retries failed again, the last with “connect ECONNREFUSED", told["was"]
    )
    assert "hunter22" not in told["was"]
    assert auto_retry_limits.breaker_room(MAIL, REFUSED) == 0  # the one for all errors still stands
    released(BREAKER.name, every.key)
    assert auto_retry_limits.breaker_room(MAIL, REFUSED) == ENOUGH
    assert book.limits_of_queue(MAIL, now_ms()).breakers == ()


def test_a_job_at_its_cap_may_go_again(bench: Bench) -> None:
    for _ in range(RETRY_CAP):
        auto_retry_limits.admit_retries(MAIL, {"9": AutoRetryCandidate(REFUSED)})
    auto_retry_limits.admit_retries(MAIL, {"8": AutoRetryCandidate(REFUSED)})
    (capped,) = book.limits_of_queue(MAIL, now_ms()).capped
    assert (capped.job, capped.key, capped.count, capped.made) == (MAIL.job("9"), job_key("9"), 3, 3)
    assert note(released(RETRY_HISTORY.name, capped.key))[2]["was"] == "Auto-retried 3 times."
    assert auto_retry_limits.retry_histories(MAIL, ["9"]) == {"9": RetryHistory()}
    assert book.limits_of_queue(MAIL, now_ms()).capped == ()


def test_a_quarantined_job_is_forgiven_what_it_did_until_now(bench: Bench, quarantined: str) -> None:
    assert incidents.orphan_counts(MAIL, ["7"], now_ms()) == {"7": 3}
    (found,) = book.limits_of_queue(MAIL, now_ms()).quarantined
    assert (found.job, found.key, found.count) == (MAIL.job("7"), quarantined, 3)
    assert note(released("quarantine", quarantined))[2]["was"] == "Orphaned 3 times."
    assert incidents.orphan_counts(MAIL, ["7"], now_ms()) == {}
    assert book.limits_of_queue(MAIL, now_ms()).quarantined == ()
    with pytest.raises(Missing):
        released("quarantine", quarantined)


def test_what_it_does_afterwards_counts_again(bench: Bench, quarantined: str) -> None:
    released("quarantine", quarantined)
    orphaned("7", *(-HOUR * number for number in (1, 2, 3)))
    assert incidents.orphan_counts(MAIL, ["7"], now_ms()) == {"7": 3}
    assert [one.count for one in book.all_limits(now_ms()).quarantined] == [3]


def test_a_quarantined_job_is_what_was_orphaned_three_times_within_three_days(bench: Bench) -> None:
    orphaned("old", HOUR, 2 * HOUR, 4 * DAY)
    orphaned("now", HOUR, 2 * HOUR)
    orphaned("now", SECOND, is_open=True)
    orphaned("elsewhere", HOUR, 2 * HOUR, 3 * HOUR, queue=OTHER)
    assert [one.job for one in book.all_limits(now_ms()).quarantined] == [MAIL.job("now"), OTHER.job("elsewhere")]
    assert [one.job for one in book.limits_of_queue(MAIL, now_ms()).quarantined] == [MAIL.job("now")]


def test_a_quarantined_job_waits_for_a_person_however_long_it_takes(bench: Bench) -> None:
    """Also while it is an orphan still: what quarantined it lay within three days of that."""
    orphaned("waits", 10 * DAY - HOUR, 10 * DAY - 2 * HOUR)
    orphaned("waits", 8 * DAY, is_open=True)
    orphaned("failed", 10 * DAY, 11 * DAY, 12 * DAY)
    orphaned("seldom", 10 * DAY, 20 * DAY)
    counts = incidents.orphan_counts(MAIL, ["waits", "failed", "seldom"], now_ms())
    assert counts == {"waits": 2, "failed": 3}, "this time is not among those before"
    assert {one.job.id for one in book.all_limits(now_ms()).quarantined} == {"waits", "failed"}


def test_a_very_long_id_is_released_by_its_key(bench: Bench) -> None:
    long = "x" * 3_000
    orphaned(long, HOUR, 2 * HOUR, 3 * HOUR)
    (found,) = book.all_limits(now_ms()).quarantined
    released("quarantine", found.key)
    assert incidents.orphan_counts(MAIL, [long], now_ms()) == {}


def test_one_that_cannot_be_read_is_released_like_any_other(bench: Bench) -> None:
    trip()
    hold()
    BrakeState.objects.exclude(kind=RETRY_HISTORY.name).update(state="[]")
    held = now_held(bench)
    assert [len(held.holding), len(held.breakers)] == [1, 2]
    released(REDIS_PAUSE.name)
    for breaker in held.breakers:
        released(BREAKER.name, breaker.key)
    held = now_held(bench)
    assert (held.holding, held.breakers) == ((), ())


def test_the_watch_forgets_quarantine_at_its_next_look(watch_bench: Make, valkey: Store) -> None:
    """Its mark was made when it was quarantined, and has to be made anew."""
    orphaned("1", HOUR, 2 * HOUR)
    one = watch_bench(valkey)
    orphan(one, valkey, MAIL, processedOn=1_760_000_000_000)
    assert one.look().rows[0].verdict.is_quarantined
    released("quarantine", job_key("1"))
    verdict = one.look().rows[0].verdict
    assert (verdict.kind.is_orphaned, verdict.is_quarantined) == (True, False)
    requeued(valkey, MAIL)
    assert one.look().stuck == 0


def test_a_quarantined_job_stays_quarantine_while_the_database_does_not_say(
    watch_bench: Make, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> dict[str, int]:
        raise OperationalError

    orphaned("1", HOUR, 2 * HOUR)
    one = watch_bench(valkey)
    orphan(one, valkey, MAIL)
    monkeypatch.setattr(incidents, "orphan_counts", away)
    inbox = one.look()
    assert inbox.rows[0].verdict.is_quarantined
    assert inbox.rows[0].verdict.kind in (VerdictKind.ORPHAN, VerdictKind.ABANDONED)
    assert any("Earlier incidents cannot be read" in fault for fault in inbox.faults)


# -- what the pages read beside


def test_what_an_error_gives_away_is_read_by_nobody(bench: Bench) -> None:
    """Whoever wrote it, and when: before it was known to be a secret, perhaps."""
    at, error = now_ms(), "login as ann password=hunter22"
    open_one = (
        CircuitBreaker.doubtful(error, at)
        .retried("1", at + HOUR)
        .settled("1", AutoRetryOutcome.FAILED, at + HOUR, error)
    )
    swap_one(BREAKER, SafetyLimitScope.of(MAIL), lambda _, __: open_one, breaker_key(error))
    (found,) = book.limits_of_queue(MAIL, at + HOUR).breakers
    assert "login as ann" in found.signature
    assert "hunter22" not in found.signature + found.words + found.error
    number = released(BREAKER.name, found.key)
    assert "hunter22" not in AuditEntry.objects.get(number=number).body


def test_a_gauge_says_what_was_spent_of_how_much(bench: Bench) -> None:
    auto_retry_limits.take_budget(MAIL, 9, RetryBudgetLimit(12, completed=7_200))
    (found,) = book.limits_of_queue(MAIL, now_ms()).gauges
    assert (found.queue, found.gauge.spent, found.gauge.limit) == (MAIL, 9, RetryBudgetLimit(12, 7_200))
    assert found.gauge.words == "9 of 12 auto-retries in the last minute."
    assert book.limits_of_queue(OTHER, now_ms()).gauges == ()
    assert book.all_limits(now_ms() + 2 * HOUR).gauges == ()


def test_a_deployment_that_nobody_has_looked_at_is_listed_without_a_word(bench: Bench) -> None:
    (store,) = book.redis_pauses(now_ms())
    assert store == book.DeploymentRedisPause("main")


def test_the_worst_come_first(bench: Bench) -> None:
    auto_retry_limits.admit_retries(OTHER, {"1": AutoRetryCandidate("timeout")})
    trip()
    stages = [one.stage for one in book.all_limits(now_ms()).breakers]
    assert stages == [BreakerStage.OPEN, BreakerStage.OPEN, BreakerStage.CLOSED, BreakerStage.CLOSED]


def test_a_hold_that_is_over_is_told_no_more(bench: Bench) -> None:
    hold()
    swap_one(REDIS_PAUSE, SafetyLimitScope("main"), lambda pause, _: replace(pause, holds=tuple(_ended(pause))))
    assert now_held(bench).holding == ()


def _ended(pause: RedisPause) -> Iterator[object]:
    return (replace(hold, until=hold.since - HOUR) for hold in pause.holds)
