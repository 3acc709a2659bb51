"""The inbox goes through the state store and comes back the same."""

from __future__ import annotations

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally, most_urgent_first
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.reads.stuck.inbox_store import decode, encode

QUEUE = QueueRef("main", "bull:\udcff")
JOB = QUEUE.job("a\ud800:1")
VERDICT = Verdict(
    VerdictKind.ORPHAN,
    ("It has no lock.",),
    LossCause.CRASHED,
    "worker gone.",
    "Soon.",
    5,
    Action.REQUEUE,
    2,
    is_quarantined=True,
    rescuer=PolicyScanner.STALE_CHECK,
)
ROW = JobRow(JOB, JobState.ACTIVE, name="mail", processed_at=7, lock=JobLock("w:1", None), worker="mail-3")


def line(since: int, kind: VerdictKind, *, is_quarantined: bool = False) -> StuckJob:
    return StuckJob(QUEUE.job(str(since)), "", Verdict(kind, is_quarantined=is_quarantined), since)


def test_every_field_survives() -> None:
    tally = StuckTally(
        QUEUE,
        {VerdictKind.ORPHAN: 3, VerdictKind.RUNNING: 9},
        1,
        12,
        4,
        99,
        StalledCheckState(1, 30_000, True, None),
        "no",
        QueueOutlook(2, 3, 77, PolicyScanner.STALE_CHECK, is_for_now=True),
        {"mail-3": 9},
    )
    inbox = StuckInbox(
        99,
        (StuckJob(JOB, "mail", VERDICT, 3, "mail-3", ROW, 8, "10.0.0.7"), line(1, VerdictKind.MISSING_DATA)),
        (tally,),
        ("x",),
    )
    assert decode(encode(inbox)) == inbox


def test_what_another_version_wrote_is_no_inbox() -> None:
    assert decode(b"x") is None
    assert decode(encode(StuckInbox(1))[:-1]) is None


def test_the_most_urgent_stand_first_and_of_equals_the_oldest() -> None:
    rows = [
        line(1, VerdictKind.OVERDUE),
        line(2, VerdictKind.WORKER_LOST),
        line(3, VerdictKind.ORPHAN),
        line(5, VerdictKind.ABANDONED),
        line(4, VerdictKind.ABANDONED),
        line(6, VerdictKind.WORKER_LOST, is_quarantined=True),
    ]
    assert [row.since for row in most_urgent_first(rows)] == [4, 5, 6, 3, 2, 1]
