"""The repair that is suggested fits the job and its execution, and none of them runs what has begun once more."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recovery.domain.acting import Act
from recovery.domain.inbox import Inbox, Tally
from recovery.domain.jobs import JobRow, Lock, State
from recovery.domain.judging import verdict
from recovery.domain.n8n import judging
from recovery.domain.n8n.around import Around
from recovery.domain.n8n.claims import Claim
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.lines import merged
from recovery.domain.n8n.mismatches import Mismatch, Repair
from recovery.domain.n8n.pairs import Finding, Pair, Release, Truth
from recovery.domain.refs import QueueRef
from recovery.domain.surroundings import Sighting, Surroundings
from recovery.domain.verdicts import Kind, Stuck, Verdict

NOW = 1_800_000_000_000
QUEUE = QueueRef("main", "bull:jobs")
SLOW = ", and from 2.41 on its execution is an error up to 30 s later."
LOCK = Lock("tok", 30_000)
AROUND = Around(NOW, release=Release.TWO, workers={QUEUE: 1})
BARE = Claim(QUEUE.job("1"), State.ACTIVE, "51", processed_at=NOW - 90_000)
HELD = replace(BARE, lock=LOCK)


def execution(status: ExecutionStatus, **facts: object) -> Execution:
    known = {"created_at": NOW - 90_000, "started_at": NOW - 90_000} | facts
    return Execution("51", "wf", "webhook", status, **known)  # type: ignore[arg-type]


NEW = execution(ExecutionStatus.NEW, started_at=None)
CANCELED = execution(ExecutionStatus.CANCELED, stopped_at=NOW - 60_000)


@pytest.mark.parametrize(
    ("found", "repair"),
    [
        (NEW, Repair.REQUEUE),
        (execution(ExecutionStatus.RUNNING), Repair.FAIL),
        (execution(ExecutionStatus.NEW, created_at=None), Repair.FAIL),
        (execution(ExecutionStatus.WAITING), Repair.REMOVE),
        (CANCELED, Repair.REMOVE),
        (execution(ExecutionStatus.SUCCESS), Repair.REMOVE),
        (None, Repair.REMOVE),
    ],
    ids=["new", "running", "new before 1.64", "waiting", "canceled", "success", "deleted"],
)
def test_an_orphan_is_put_back_only_when_none_of_its_steps_has_run(found: Execution | None, repair: Repair) -> None:
    assert judging.of_orphan(found) is repair
    finding = judging.of_claim(BARE, found, AROUND)
    assert finding is not None
    assert finding.repair is repair


def test_an_abort_under_way_is_told_as_that_and_needs_nobody() -> None:
    finding = judging.of_claim(replace(HELD, is_aborting=True), CANCELED, AROUND)
    assert finding is not None
    assert (finding.kind, finding.repair) == (Mismatch.STOPPING, Repair.NONE)
    assert judging.of_claim(HELD, CANCELED, AROUND) == replace(finding, kind=Mismatch.UNSEEN, repair=Repair.CANCEL)
    told = Truth("n8n", QUEUE, NOW, pairs=(Pair("51", HELD, CANCELED, finding),), counts={Mismatch.STOPPING: 1})
    assert merged(Inbox(NOW), [told]) == Inbox(NOW)


@pytest.mark.parametrize(("processed_at", "act"), [(None, Act.REQUEUE), (NOW - 90_000, Act.FAIL)], ids=str)
def test_a_job_of_n8n_that_no_worker_began_is_put_back(processed_at: int | None, act: Act) -> None:
    row = JobRow(QUEUE.job("1"), State.ACTIVE, processed_at=processed_at)
    around = Surroundings(NOW, workers=1, stalled_check_ttl=9_000, is_n8n=True)
    found = verdict(row, around, sighting=Sighting(NOW - 60_000, looks=2))
    assert (found.kind, found.suggests) == (Kind.ORPHAN, act)


def line(kind: Kind = Kind.ABANDONED, **facts: object) -> Stuck:
    told = Verdict(kind, ("It has no lock.",), suggests=Act.FAIL, **facts)  # type: ignore[arg-type]
    return Stuck(QUEUE.job("1"), "job", told, NOW - 90_000, row=JobRow(QUEUE.job("1"), State.ACTIVE))


def suggested(stuck: Stuck, found: Execution) -> Act | None:
    tally = Tally(QUEUE, {stuck.verdict.kind: 1}, 1, 1, checked_at=NOW)
    finding = Finding(Mismatch.LEFT, judging.of_orphan(found), NOW - 60_000)
    truth = Truth("n8n", QUEUE, NOW, pairs=(Pair("51", BARE, found, finding),), counts={Mismatch.LEFT: 1})
    (told,) = merged(Inbox(NOW, (stuck,), (tally,)), [truth]).rows
    return told.verdict.suggests


def test_a_stuck_job_is_advised_as_its_execution_is() -> None:
    assert suggested(line(), CANCELED) is Act.REMOVE
    assert suggested(line(), NEW) is Act.REQUEUE


def test_what_kills_its_workers_is_not_put_back_and_what_may_be_held_not_removed() -> None:
    assert suggested(line(is_quarantined=True), NEW) is Act.FAIL
    assert suggested(line(Kind.UNLOCKED), CANCELED) is Act.FAIL


def test_of_an_n8n_that_is_known_a_stuck_job_says_what_that_one_does() -> None:
    stuck = line(fate="A worker's stalled check picks it up within 12 s; n8n 2 and later fail it then" + SLOW)
    tally = Tally(QUEUE, {Kind.ABANDONED: 1}, 1, 1, checked_at=NOW)
    (told,) = merged(Inbox(NOW, (stuck,), (tally,)), [Truth("n8n", QUEUE, NOW, release=Release.TWO)]).rows
    assert told.verdict.fate == "A worker's stalled check picks it up within 12 s; n8n fails it then" + SLOW
