"""What a scanner does goes through the one door, chunk by chunk, and stops as soon as it may not go on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recovery.actions import runner
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, ExpectedJob, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.policies.policy_layers import (
    LayerValues,
    PolicySource,
    PolicyValueOrigin,
    ResolvedPolicy,
    resolve_policy,
)
from recovery.domain.policies.types import ScannerMode
from recovery.domain.scanners.types import ScannerFinding, ScannerKind
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.errors import NotRecorded
from recovery.models import AuditEntry
from recovery.scanners.runtime import scanner_actions
from recovery.scanners.runtime.scanner_actions import ScannerActionRequest, ScannerActions
from tests.support.acting import Bench
from tests.support.stores.fences import hold
from tests.support.stores.stores import Store

pytestmark = pytest.mark.django_db(transaction=True)

POLICY = "Enabled, at most 500 jobs per run (in the file, for all queues)."


class Rules:
    """The same policy for every queue."""

    def __init__(self, mode: ScannerMode = ScannerMode.ENABLED, most: int = 500) -> None:
        values: dict[tuple[str, ...], Any] = {("stale_check", "mode"): mode, ("stale_check", "most"): most}
        self._layer = LayerValues(PolicyValueOrigin(PolicySource.FILE), values)

    def of(self, queue: QueueRef) -> ResolvedPolicy:
        return resolve_policy([self._layer], queue)


def always() -> bool:
    return True


def nothing(_deployment: str) -> tuple[str, ...]:
    return ()


def made(
    rules: Rules | None = None,
    *,
    leader_token: LeaderToken | None = LeaderToken(7, always),  # noqa: B008 -- frozen
    **chosen: Any,
) -> ScannerActions:
    return ScannerActions(
        leader_token, ScannerKind.STALE_CHECK, rules or Rules(), chosen.pop("holding", nothing), **chosen
    )


def wishes(bench: Bench, *ids: str) -> list[ScannerActionRequest]:
    return [ScannerActionRequest(seen, "it hangs", POLICY) for seen in runner.current_jobs(bench.ref, ids)]


def requeue(bench: Bench, by: ScannerActions, *ids: str) -> tuple[ScannerFinding, ...]:
    return by.do(Action.REQUEUE, bench.ref, wishes(bench, *ids))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs a chunk."""
    monkeypatch.setattr(scanner_actions, "CHUNK", 2)


@pytest.fixture
def orphans(bench: Bench) -> tuple[str, ...]:
    ids = tuple("123456")
    bench.orphan(*ids)
    return ids


def test_it_is_done_and_audited_under_the_scanners_name_with_the_policy(bench: Bench) -> None:
    bench.orphan("1")
    (find,) = requeue(bench, made(), "1")
    assert (find.outcome, find.act, find.policy, find.what) == (Outcome.DONE, Action.REQUEUE, POLICY, "it hangs")
    assert bench.ids(JobState.WAITING) == ["1"]
    assert find.audit
    entry = AuditEntry.objects.get(number=find.audit)
    assert (entry.actor_kind, entry.actor, entry.reason) == ("scanner", "stale-check", POLICY)


def test_a_queue_that_is_only_observed_is_not_touched(bench: Bench) -> None:
    bench.orphan("1")
    before = bench.dump()
    (find,) = requeue(bench, made(Rules(ScannerMode.DRY_RUN)), "1")
    assert find.outcome is None
    assert find.policy.startswith("Dry run")
    assert bench.dump() == before
    assert not AuditEntry.objects.exists()


def test_whoever_was_asked_to_look_only_looks_only(bench: Bench) -> None:
    bench.orphan("1")
    before = bench.dump()
    (find,) = requeue(bench, made(dry_run=True), "1")
    assert (find.outcome, find.policy) == (None, scanner_actions.ONLY_LOOKS)
    assert bench.dump() == before


def test_while_nobody_knows_who_leads_nothing_is_done(bench: Bench) -> None:
    bench.orphan("1")
    before, by = bench.dump(), made(leader_token=None)
    (find,) = requeue(bench, by, "1")
    assert (find.outcome, find.policy) == (None, scanner_actions.NO_MANDATE)
    assert by.is_stopped
    assert bench.dump() == before


def test_one_run_does_no_more_than_the_policy_says(bench: Bench, orphans: tuple[str, ...], small: None) -> None:
    by = made(Rules(most=3))
    finds = requeue(bench, by, *orphans)
    assert [find.outcome for find in finds] == [Outcome.DONE] * 3 + [None] * 3
    assert bench.ids(JobState.ACTIVE) == ["6", "5", "4"]
    assert by.room(bench.ref) == 0
    assert "At most 3 jobs" in by.holds[0]


def test_what_was_refused_does_not_count(bench: Bench, small: None) -> None:
    bench.held("1", "2", "3")
    bench.orphan("4")
    by = made(Rules(most=1))
    finds = requeue(bench, by, "1", "2", "3", "4")
    assert [find.outcome for find in finds][:3] == [Outcome.REFUSED] * 3
    assert finds[3].outcome is Outcome.DONE


def test_a_lost_lease_ends_it_between_two_chunks(bench: Bench, orphans: tuple[str, ...], small: None) -> None:
    leads = iter([True, True, False])
    by = made(leader_token=LeaderToken(7, lambda: next(leads, False)))
    finds = requeue(bench, by, *orphans)
    done = sum(find.outcome is Outcome.DONE for find in finds)
    assert 0 < done < len(orphans)
    assert done % 2 == 0
    assert {find.policy for find in finds if find.outcome is None} == {scanner_actions.LED}
    assert len(bench.ids(JobState.ACTIVE)) == len(orphans) - done


def test_a_safety_limit_that_engages_holds_the_next_chunk(bench: Bench, orphans: tuple[str, ...], small: None) -> None:
    looks = iter([tuple[str, ...](), ("The store was restarted.",)])
    by = made(holding=lambda _: next(looks, ("The store was restarted.",)))
    finds = requeue(bench, by, *orphans)
    assert [find.outcome for find in finds] == [Outcome.DONE] * 2 + [None] * 4
    assert {find.policy for find in finds[2:]} == {"The store was restarted."}
    assert by.holds == ["The store was restarted."]


def test_another_scheduler_that_leads_stops_all_of_it(bench: Bench, orphans: tuple[str, ...], small: None) -> None:
    """Nobody told us: the script met the later epoch itself."""
    hold(bench.client, bench.base, 9)
    by = made()
    finds = requeue(bench, by, *orphans)
    assert Outcome.DONE not in {find.outcome for find in finds}
    assert by.is_stopped
    assert any("epoch 9" in hold for hold in by.holds)
    assert len(bench.ids(JobState.ACTIVE)) == len(orphans)
    assert AuditEntry.objects.filter(phase="intent").count() == 1, "the first chunk told enough"


def test_a_store_that_goes_away_is_not_asked_for_more(
    bench: Bench, orphans: tuple[str, ...], small: None, valkey: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, asked = wishes(bench, *orphans), list[ActionCommand]()
    perform = runner.perform

    def counted(order: ActionCommand) -> Any:
        asked.append(order)
        return perform(order)

    monkeypatch.setattr(runner, "perform", counted)
    by = made()
    valkey.pause()
    try:
        finds = by.do(Action.REQUEUE, bench.ref, wanted)
    finally:
        valkey.resume()
    assert len(asked) == 1
    assert {find.outcome for find in finds[:2]} <= {Outcome.REFUSED, Outcome.UNKNOWN}
    assert {find.outcome for find in finds[2:]} == {None}
    assert by.faults
    assert not by.is_stopped, "another deployment may be well"


def test_an_audit_that_cannot_be_written_stops_all_of_it(
    bench: Bench, orphans: tuple[str, ...], small: None, deaf: Callable[[], None]
) -> None:
    wanted = wishes(bench, *orphans)
    deaf()
    by = made()
    finds = by.do(Action.REQUEUE, bench.ref, wanted)
    assert by.is_stopped
    assert {find.outcome for find in finds} == {Outcome.REFUSED, None}
    assert len(bench.ids(JobState.ACTIVE)) == len(orphans)


@pytest.fixture
def deaf(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """The audit takes nothing any more."""

    def refuse(*_: Any, **__: Any) -> int:
        raise NotRecorded("The audit cannot be written, so nothing was changed.")

    return lambda: monkeypatch.setattr("recovery.actions.audit.audit_log.write_intent", refuse)


def test_a_job_that_is_wished_for_twice_is_meant_once(bench: Bench) -> None:
    bench.orphan("1")
    (wish,) = wishes(bench, "1")
    first, second = made().do(Action.REQUEUE, bench.ref, [wish, wish])
    assert first == second
    assert first.outcome is Outcome.DONE


def test_reasons_of_their_own_make_orders_of_their_own(bench: Bench) -> None:
    bench.orphan("1", "2")
    one, two = (
        ScannerActionRequest(seen, "it hangs", f"rule of {seen.id}")
        for seen in runner.current_jobs(bench.ref, ("1", "2"))
    )
    made().do(Action.REQUEUE, bench.ref, [one, two])
    told = AuditEntry.objects.filter(phase="intent").order_by("number").values_list("reason", flat=True)
    assert list(told) == ["rule of 1", "rule of 2"]


def test_a_lock_that_was_seen_is_released_with_its_token_alone(bench: Bench) -> None:
    bench.held("1", token="gone:1", ttl=None)
    seen = ExpectedJob("1", JobState.ACTIVE, "another:1", starts=1)
    (find,) = made().do(
        Action.RELEASE, bench.ref, [ScannerActionRequest(seen, "it hangs", POLICY)], ActionOptions(requeue=True)
    )
    assert find.outcome is Outcome.REFUSED
    assert bench.ids(JobState.ACTIVE) == ["1"]
