"""What the scanners do by themselves is foretold, and what they leave to a person is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recovery.domain.jobs import JobLock
from recovery.domain.policies.enabled_scanners import EnabledScanner, EnabledScanners
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.context import ParentState, VerdictContext, WorkerChange
from recovery.domain.stuck.outlook import recovers_within
from recovery.domain.stuck.types import Verdict, VerdictKind
from tests.unit.stuck.test_job_rules import EMPTY, MINUTE, NOW, OLD, SECOND, SURE, WELL, judged, lockless, row, seen

WATCH = EnabledScanner(PolicyScanner.ORPHAN_WATCH, every=5 * SECOND, most=500)
STALE = EnabledScanner(
    PolicyScanner.STALE_CHECK, every=15 * MINUTE, after=15 * MINUTE, most=500, next_at=NOW + 3 * MINUTE
)
DEAD = replace(EMPTY, rescuers=EnabledScanners(WATCH, STALE))
QUIET = replace(EMPTY, rescuers=EnabledScanners(None, STALE))
WAITS = "it waits then, because no worker is connected"
GONE = replace(WELL, workers=1, names=frozenset({"mail-2"}), left=(WorkerChange("mail-1", NOW - 10_000),))


def told(found: Verdict) -> tuple[str, PolicyScanner | None, bool]:
    return found.fate, found.rescuer, found.needs_a_person


def test_an_armed_watch_requeues_what_is_abandoned_at_its_next_look() -> None:
    found = judged(lockless(), DEAD, SURE)
    assert found.kind is VerdictKind.ABANDONED
    assert told(found) == (f"Orphan-watch requeues it within 5 s; {WAITS}.", PolicyScanner.ORPHAN_WATCH, False)
    assert found.until == NOW + 5_250


def test_it_waits_as_long_as_its_policy_says() -> None:
    patient = replace(DEAD, rescuers=EnabledScanners(replace(WATCH, after=60 * SECOND), None))
    assert judged(lockless(), patient, seen(20 * SECOND, sure=True)).fate == (
        f"Orphan-watch requeues it within 45 s; {WAITS}."
    )


def test_of_more_than_one_run_takes_the_last_ones_wait_for_later_runs() -> None:
    crowd = replace(DEAD, lost=1_200)
    assert judged(lockless(), crowd, SURE).until == NOW + 3 * 5_250


@pytest.mark.parametrize(
    ("since", "within"),
    [
        (20 * MINUTE, 3 * MINUTE),  # the run that is due takes it
        (13 * MINUTE, 3 * MINUTE),
        (11 * MINUTE, 3 * MINUTE + 945 * SECOND),  # too young for that one: the run after it does
        (0, 3 * MINUTE + 945 * SECOND),
    ],
)
def test_the_stale_check_takes_it_in_the_first_run_after_its_time(since: int, within: int) -> None:
    found = judged(lockless(), QUIET, seen(since, sure=True))
    assert found.until == NOW + within
    assert told(found) == (
        f"Stale-check requeues it within {within // MINUTE} min; {WAITS}.",
        PolicyScanner.STALE_CHECK,
        False,
    )


def test_a_run_that_is_overdue_promises_only_the_one_after_it() -> None:
    late = replace(QUIET, rescuers=EnabledScanners(None, replace(STALE, next_at=NOW - SECOND)))
    assert judged(lockless(), late, seen(20 * MINUTE, sure=True)).until == NOW + 945 * SECOND


def test_where_a_watchdog_is_sooner_its_words_stay() -> None:
    both = replace(WELL, rescuers=EnabledScanners(None, STALE))
    found = judged(lockless(), both, SURE)
    assert told(found) == ("A worker's stalled check picks it up within 18 s.", None, False)
    sooner = judged(lockless(), replace(WELL, rescuers=EnabledScanners(WATCH, None)), SURE)
    assert told(sooner) == ("Orphan-watch requeues it within 5 s.", PolicyScanner.ORPHAN_WATCH, False)


def test_a_lock_that_ends_is_waited_for() -> None:
    found = judged(row(worker="", lock=JobLock("w:1", 12_000)), DEAD)
    assert found.kind is VerdictKind.WORKER_LOST
    assert found.fate == f"The lock expires in 12 s; then orphan-watch requeues it, within 17 s; {WAITS}."
    late = judged(row(lock=JobLock("w:1", 9_000)), replace(WELL, rescuers=EnabledScanners(WATCH, None)))
    assert late.fate == "The lock expires in 9 s unless it is renewed; then orphan-watch requeues it, within 14 s."


def test_where_a_job_is_bare_when_it_starts_the_proof_takes_two_looks_at_the_end_of_its_lock() -> None:
    bull = replace(DEAD, has_window=True, follows_locks=True)
    found = judged(row(worker="", lock=JobLock("w:1", 12_000)), bull)
    assert found.until == NOW + 12_000 + 5_250 + 1_500 + 5_250
    expired = replace(seen(1_000), has_expired=True)
    sooner = judged(lockless(), bull, expired)
    assert (sooner.kind, sooner.until) == (VerdictKind.UNLOCKED, NOW + 500 + 5_250)


def test_where_no_look_saw_its_lock_run_out_the_proof_takes_an_interval() -> None:
    older = replace(DEAD, has_window=True)  # BullMQ 3 and 4
    for around in (older, replace(older, follows_locks=True, lock_length=10_000)):
        found = judged(row(worker="", lock=JobLock("w:1", 3_000)), around)
        assert found.until == NOW + 3_000 + 5_250 + 30_000 + 5_250
    unproven = judged(
        lockless(), replace(OLD, stalled_check_ttl=None, workers=0, rescuers=EnabledScanners(WATCH, None)), seen(9_000)
    )
    assert unproven.kind is VerdictKind.UNLOCKED
    assert unproven.until == NOW + 21_000 + 5_250


def test_with_leave_to_release_a_named_workers_lock_is_not_waited_for() -> None:
    loose = replace(GONE, rescuers=EnabledScanners(replace(WATCH, release=True), None))
    found = judged(row(), loose)
    assert told(found) == (
        "Orphan-watch releases its lock and requeues it within 5 s.",
        PolicyScanner.ORPHAN_WATCH,
        False,
    )
    nameless = judged(row(worker=""), replace(EMPTY, rescuers=loose.rescuers))
    assert nameless.fate.startswith("The lock expires in 22 s; then orphan-watch requeues it")


def test_a_lock_that_never_ends_is_the_stale_checks_where_it_may_release() -> None:
    endless = row(lock=JobLock("w:1", None))
    tight = judged(endless, replace(GONE, rescuers=EnabledScanners(WATCH, STALE)), seen(40 * SECOND))
    assert (tight.kind, tight.rescuer, tight.needs_a_person) == (VerdictKind.WORKER_LOST, None, True)
    loose = replace(GONE, rescuers=EnabledScanners(WATCH, replace(STALE, release=True)))
    found = judged(endless, loose, seen(20 * MINUTE))
    assert told(found) == (
        "Stale-check releases its lock and requeues it within 3 min.",
        PolicyScanner.STALE_CHECK,
        False,
    )


def test_an_id_without_a_job_is_removed_by_the_stale_check() -> None:
    found = judged(lockless(missing=True), QUIET, seen(20 * MINUTE))
    assert told(found) == (
        "Stale-check removes its id within 3 min, unless a worker runs it first, without its name and data.",
        PolicyScanner.STALE_CHECK,
        False,
    )
    watched = judged(lockless(missing=True), replace(WELL, rescuers=QUIET.rescuers), seen(20 * MINUTE))
    assert (watched.rescuer, watched.needs_a_person) == (None, True)
    assert judged(row(missing=True), QUIET, seen(20 * MINUTE)).rescuer is None


@pytest.mark.parametrize(
    "facts",
    [{"orphaned": 2}, {"breaks": "Its data violates the schema."}],
    ids=["quarantine", "malformed"],
)
def test_what_is_left_to_a_person_is_promised_by_nobody(facts: dict[str, Any]) -> None:
    found = judged(lockless(), DEAD, SURE, **facts)
    assert (found.rescuer, found.needs_a_person) == (None, True)
    assert "requeues" not in found.fate


def test_nor_is_a_job_of_n8n() -> None:
    found = judged(lockless(), replace(DEAD, is_n8n=True), SURE)
    assert told(found) == ("Never recovered: no worker is connected, so no stalled check runs.", None, True)


@pytest.mark.parametrize("held", ["it is paused", "auto-recovery is paused on main", "no scheduler leads"])
def test_one_that_is_held_is_named_with_what_holds_it(held: str) -> None:
    found = judged(lockless(), replace(EMPTY, rescuers=EnabledScanners(replace(WATCH, held=held), None)), SURE)
    assert told(found) == (
        f"Never recovered: no worker is connected, so no stalled check runs. Orphan-watch is enabled, but {held}.",
        None,
        True,
    )


def test_of_two_the_one_that_is_free_is_told() -> None:
    found = judged(
        lockless(),
        replace(EMPTY, rescuers=EnabledScanners(replace(WATCH, held="it is paused"), STALE)),
        seen(20 * MINUTE, sure=True),
    )
    assert told(found) == (f"Stale-check requeues it within 3 min; {WAITS}.", PolicyScanner.STALE_CHECK, False)


def test_what_nobody_lost_is_nobodys_to_rescue() -> None:
    armed = replace(WELL, rescuers=EnabledScanners(WATCH, STALE))
    assert judged(row(), armed).rescuer is None
    overdue = judged(row(), replace(armed, overdue_after=SECOND))
    assert (overdue.kind, overdue.rescuer, overdue.needs_a_person) == (VerdictKind.OVERDUE, None, True)
    stray = judged(row(), armed, parent=ParentState.FAILED)
    assert (stray.kind, stray.rescuer, stray.needs_a_person) == (VerdictKind.STRAY, None, True)


@pytest.mark.parametrize(
    ("around", "within"),
    [
        (WELL, 120_000),
        (replace(WELL, lock_length=90_000), 150_000),
        (replace(WELL, is_n8n=True, n8n_version=(2, 40, 7)), 120_000),
        (replace(WELL, is_n8n=True, n8n_version=(2, 41, 0)), 150_000),
        (replace(WELL, is_n8n=True), 150_000),
        (replace(WELL, is_n8n=True, fails_stalled=False), 120_000),
        (EMPTY, None),
        (DEAD, 35_000),
        (replace(DEAD, has_window=True), 30_000 + 5_250 + 30_000 + 5_000),
        (replace(DEAD, has_window=True, follows_locks=True), 30_000 + 5_250 + 1_500 + 5_000),
        (QUIET, 30 * SECOND + 30 * MINUTE),
        (replace(WELL, rescuers=EnabledScanners(WATCH, None)), 35_000),
        (replace(DEAD, is_n8n=True), None),
        (replace(DEAD, lock_length=None), None),
        (replace(EMPTY, rescuers=EnabledScanners(replace(WATCH, held="it is paused"), None)), None),
    ],
)
def test_how_long_a_death_costs_at_worst(around: VerdictContext, within: int | None) -> None:
    assert recovers_within(around) == within
