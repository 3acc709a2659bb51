"""The repair that is suggested fits the job and its execution, and none of them runs what has begun once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.n8n import rules as n8n_rules
from recovery.domain.n8n.comparison import JobExecutionPair, MismatchFinding, N8nComparison, N8nRelease
from recovery.domain.n8n.comparison_context import ComparisonContext
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatch_rows import merge_mismatches
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.domain.stuck.context import LocklessObservation, VerdictContext
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.job_rules import verdict_for_job
from recovery.domain.stuck.types import StuckJob, Verdict, VerdictKind

NOW = 1_800_000_000_000
QUEUE = QueueRef("main", "bull:jobs")
SLOW = ", and from 2.41 on its execution is an error up to 30 s later."
LOCK = JobLock("tok", 30_000)
AROUND = ComparisonContext(NOW, release=N8nRelease.TWO, workers={QUEUE: 1})
BARE = N8nJob(QUEUE.job("1"), JobState.ACTIVE, "51", processed_at=NOW - 90_000)
HELD = replace(BARE, lock=LOCK)


def execution(status: ExecutionStatus, **facts: object) -> Execution:
    known = {"created_at": NOW - 90_000, "started_at": NOW - 90_000} | facts
    return Execution("51", "wf", "webhook", status, **known)  # type: ignore[arg-type]


NEW = execution(ExecutionStatus.NEW, started_at=None)
CANCELED = execution(ExecutionStatus.CANCELED, stopped_at=NOW - 60_000)


@pytest.mark.parametrize(
    ("found", "repair"),
    [
        (NEW, MismatchRepair.REQUEUE),
        (execution(ExecutionStatus.RUNNING), MismatchRepair.FAIL),
        (execution(ExecutionStatus.NEW, created_at=None), MismatchRepair.FAIL),
        (execution(ExecutionStatus.WAITING), MismatchRepair.REMOVE),
        (CANCELED, MismatchRepair.REMOVE),
        (execution(ExecutionStatus.SUCCESS), MismatchRepair.REMOVE),
        (None, MismatchRepair.REMOVE),
    ],
    ids=["new", "running", "new before 1.64", "waiting", "canceled", "success", "deleted"],
)
def test_an_orphan_is_put_back_only_when_none_of_its_steps_has_run(
    found: Execution | None, repair: MismatchRepair
) -> None:
    assert n8n_rules.repair_of_orphan(found) is repair
    finding = n8n_rules.mismatch_of_job(BARE, found, AROUND)
    assert finding is not None
    assert finding.repair is repair


def test_an_abort_under_way_is_told_as_that_and_needs_nobody() -> None:
    finding = n8n_rules.mismatch_of_job(replace(HELD, is_aborting=True), CANCELED, AROUND)
    assert finding is not None
    assert (finding.kind, finding.repair) == (MismatchKind.STOPPING, MismatchRepair.NONE)
    assert n8n_rules.mismatch_of_job(HELD, CANCELED, AROUND) == replace(
        finding, kind=MismatchKind.UNSEEN, repair=MismatchRepair.CANCEL
    )
    told = N8nComparison(
        "n8n", QUEUE, NOW, pairs=(JobExecutionPair("51", HELD, CANCELED, finding),), counts={MismatchKind.STOPPING: 1}
    )
    assert merge_mismatches(StuckInbox(NOW), [told]) == StuckInbox(NOW)


@pytest.mark.parametrize(("processed_at", "act"), [(None, Action.REQUEUE), (NOW - 90_000, Action.FAIL)], ids=str)
def test_a_job_of_n8n_that_no_worker_began_is_put_back(processed_at: int | None, act: Action) -> None:
    row = JobRow(QUEUE.job("1"), JobState.ACTIVE, processed_at=processed_at)
    around = VerdictContext(NOW, workers=1, stalled_check_ttl=9_000, is_n8n=True)
    found = verdict_for_job(row, around, sighting=LocklessObservation(NOW - 60_000, looks=2))
    assert (found.kind, found.suggests) == (VerdictKind.ORPHAN, act)


def line(kind: VerdictKind = VerdictKind.ABANDONED, **facts: object) -> StuckJob:
    told = Verdict(kind, ("It has no lock.",), suggests=Action.FAIL, **facts)  # type: ignore[arg-type]
    return StuckJob(QUEUE.job("1"), "job", told, NOW - 90_000, row=JobRow(QUEUE.job("1"), JobState.ACTIVE))


def suggested(stuck: StuckJob, found: Execution) -> Action | None:
    tally = StuckTally(QUEUE, {stuck.verdict.kind: 1}, 1, 1, checked_at=NOW)
    finding = MismatchFinding(MismatchKind.LEFT, n8n_rules.repair_of_orphan(found), NOW - 60_000)
    truth = N8nComparison(
        "n8n", QUEUE, NOW, pairs=(JobExecutionPair("51", BARE, found, finding),), counts={MismatchKind.LEFT: 1}
    )
    (told,) = merge_mismatches(StuckInbox(NOW, (stuck,), (tally,)), [truth]).rows
    return told.verdict.suggests


def test_a_stuck_job_is_advised_as_its_execution_is() -> None:
    assert suggested(line(), CANCELED) is Action.REMOVE
    assert suggested(line(), NEW) is Action.REQUEUE


def test_what_kills_its_workers_is_not_put_back_and_what_may_be_held_not_removed() -> None:
    assert suggested(line(is_quarantined=True), NEW) is Action.FAIL
    assert suggested(line(VerdictKind.UNLOCKED), CANCELED) is Action.FAIL


def test_of_an_n8n_that_is_known_a_stuck_job_says_what_that_one_does() -> None:
    stuck = line(fate="A worker's stalled check picks it up within 12 s; n8n 2 and later fail it then" + SLOW)
    tally = StuckTally(QUEUE, {VerdictKind.ABANDONED: 1}, 1, 1, checked_at=NOW)
    (told,) = merge_mismatches(
        StuckInbox(NOW, (stuck,), (tally,)), [N8nComparison("n8n", QUEUE, NOW, release=N8nRelease.TWO)]
    ).rows
    assert told.verdict.fate == "A worker's stalled check picks it up within 12 s; n8n fails it then" + SLOW
