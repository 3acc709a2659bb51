"""What a running row of a job table is called, by what of it says that somebody works on it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.policies.enabled_scanners import EnabledScanner
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.job_table_rules import JobTableLimits, lost_since, verdict_for_row
from recovery.domain.stuck.types import LossCause, VerdictKind

NOW = 1_760_000_000_000
REF = QueueRef("app", "jobs")
SWEEP = EnabledScanner(PolicyScanner.STARTUP_SWEEP, every=60_000, most=500)
TERMS = JobTableLimits(NOW, lease_grace=5_000, heartbeat_limit=60_000, sweep=SWEEP, counts_attempts=True)
ROW = JobRow(REF.job("1"), JobState.ACTIVE, processed_at=NOW - 600_000, worker="w1", attempts=1, attempts_limit=3)

LEASED = replace(ROW, lease_until=NOW + 20_000, lock=JobLock("w1", 25_000))
LATE = replace(ROW, lease_until=NOW - 2_000, lock=JobLock("w1", 3_000))
LOST = replace(ROW, lease_until=NOW - 65_000)
BEATING = replace(ROW, heartbeat_at=NOW - 10_000, lock=JobLock("w1", 50_000))
SILENT = replace(ROW, heartbeat_at=NOW - 90_000)
AGED = replace(ROW)  # its age is over, and nothing else is kept
YOUNG = replace(ROW, lock_known=False)


@pytest.mark.parametrize(
    ("row", "terms", "kind"),
    [
        (LEASED, TERMS, VerdictKind.RUNNING),
        (LATE, TERMS, VerdictKind.LATE),
        (LOST, TERMS, VerdictKind.ORPHAN),
        (LOST, replace(TERMS, sweep=None), VerdictKind.ABANDONED),
        (BEATING, TERMS, VerdictKind.RUNNING),
        (SILENT, TERMS, VerdictKind.ORPHAN),
        (AGED, replace(TERMS, age_limit=300_000), VerdictKind.ORPHAN),
        (YOUNG, replace(TERMS, age_limit=900_000), VerdictKind.UNKNOWN),
        (YOUNG, TERMS, VerdictKind.UNKNOWN),
        (LEASED, replace(TERMS, overdue_after=300_000), VerdictKind.OVERDUE),
        (YOUNG, replace(TERMS, overdue_after=300_000), VerdictKind.OVERDUE),
        (LOST, replace(TERMS, overdue_after=300_000), VerdictKind.ORPHAN),
    ],
)
def test_the_sign_that_counts_makes_the_verdict(row: JobRow, terms: JobTableLimits, kind: VerdictKind) -> None:
    found = verdict_for_row(row, terms)
    assert found.kind is kind
    assert found.why
    assert found.fate


@pytest.mark.parametrize(
    ("row", "terms", "said"),
    [
        (LEASED, TERMS, "w1 holds it; its lease has 20 s left."),
        (LATE, TERMS, "Its lease has expired; the grace period of 5 s has 3 s left."),
        (LOST, TERMS, "The lease of w1 ended 1 min ago and was not renewed."),
        (replace(LOST, worker=""), TERMS, "The lease ended 1 min ago and was not renewed."),
        (BEATING, TERMS, "w1 sent its last heartbeat 10 s ago."),
        (SILENT, TERMS, "The last heartbeat of w1 is 1 min old; the limit is 1 min."),
        (AGED, replace(TERMS, age_limit=300_000), "It has run at w1 for 10 min; the limit for a row is 5 min."),
        (YOUNG, TERMS, "It has run for 10 min; its row does not show whether a worker runs it."),
        (
            replace(YOUNG, processed_at=None),
            TERMS,
            "Its row does not show whether a worker runs it, nor since when.",
        ),
    ],
)
def test_the_words_are_the_rows_own(row: JobRow, terms: JobTableLimits, said: str) -> None:
    assert verdict_for_row(row, terms).why == said


def test_a_sweep_puts_it_back_or_fails_it_with_its_last_attempt() -> None:
    first, last = verdict_for_row(LOST, TERMS), verdict_for_row(replace(LOST, attempts=2), TERMS)
    assert (first.fate, first.until) == ("A sweep recovers it within 1 min, and it waits again.", NOW + 63_000)
    assert last.fate == "A sweep recovers it within 1 min; its 3 attempts are used up then, so it fails."
    assert not first.needs_a_person


def test_without_a_sweep_a_lost_row_needs_a_person() -> None:
    found = verdict_for_row(LOST, replace(TERMS, sweep=None))
    assert found.needs_a_person
    assert found.fate == "Never recovered, unless a worker of this table sweeps it on startup."
    assert found.suggests is Action.REQUEUE


def test_what_the_owners_other_rows_tell_is_the_cause() -> None:
    other = replace(LOST, ref=REF.job("2"))
    alive = replace(LEASED, ref=REF.job("3"))
    assert verdict_for_row(LOST, TERMS, owned=[LOST]).cause is LossCause.UNKNOWN
    assert verdict_for_row(LOST, TERMS, owned=[LOST, other]).cause is LossCause.CRASHED
    assert verdict_for_row(LOST, TERMS, owned=[LOST, other, alive]).cause is LossCause.STARVED
    assert verdict_for_row(replace(LOST, worker=""), TERMS, owned=[LOST, other]).cause is LossCause.UNKNOWN


def test_a_row_that_was_lost_twice_before_is_quarantine() -> None:
    found = verdict_for_row(LOST, TERMS, orphaned=2)
    assert (found.is_quarantined, found.suggests) == (True, Action.FAIL)
    assert not verdict_for_row(LEASED, TERMS, orphaned=2).is_quarantined


def test_bad_data_is_told_with_what_the_row_says() -> None:
    found = verdict_for_row(LOST, TERMS, breaks="Its data violates the schema of its queue: data.id must be a number.")
    assert (found.kind, found.of_lock, found.suggests) == (VerdictKind.MALFORMED, VerdictKind.ORPHAN, Action.FAIL)


@pytest.mark.parametrize(
    ("row", "terms", "at"),
    [
        (LEASED, TERMS, None),
        (YOUNG, TERMS, None),
        (LOST, TERMS, NOW - 60_000),
        (SILENT, TERMS, NOW - 30_000),
        (AGED, replace(TERMS, age_limit=300_000), NOW - 300_000),
    ],
)
def test_a_row_is_lost_since_its_sign_ended(row: JobRow, terms: JobTableLimits, at: int | None) -> None:
    assert lost_since(row, terms) == at
