"""The inbox goes through the state store and comes back the same."""

from __future__ import annotations

from recovery.domain.acting import Act
from recovery.domain.inbox import Inbox, Tally, Watchdog, ordered
from recovery.domain.jobs import JobRow, Lock, State
from recovery.domain.outlook import QueueOutlook
from recovery.domain.policy import Scanner
from recovery.domain.refs import QueueRef
from recovery.domain.verdicts import Cause, Kind, Stuck, Verdict
from recovery.reads.inboxes import decode, encode

QUEUE = QueueRef("main", "bull:\udcff")
JOB = QUEUE.job("a\ud800:1")
VERDICT = Verdict(
    Kind.ORPHAN,
    ("It has no lock.",),
    Cause.CRASHED,
    "worker gone.",
    "Soon.",
    5,
    Act.REQUEUE,
    2,
    is_quarantined=True,
    rescuer=Scanner.STALE_CHECK,
)
ROW = JobRow(JOB, State.ACTIVE, name="mail", processed_at=7, lock=Lock("w:1", None), worker="mail-3")


def line(since: int, kind: Kind, *, is_quarantined: bool = False) -> Stuck:
    return Stuck(QUEUE.job(str(since)), "", Verdict(kind, is_quarantined=is_quarantined), since)


def test_every_field_survives() -> None:
    tally = Tally(
        QUEUE,
        {Kind.ORPHAN: 3, Kind.RUNNING: 9},
        1,
        12,
        4,
        99,
        Watchdog(1, 30_000, True, None),
        "no",
        QueueOutlook(2, 3, 77, Scanner.STALE_CHECK, is_for_now=True),
        {"mail-3": 9},
    )
    inbox = Inbox(
        99, (Stuck(JOB, "mail", VERDICT, 3, "mail-3", ROW, 8, "10.0.0.7"), line(1, Kind.MISSING_DATA)), (tally,), ("x",)
    )
    assert decode(encode(inbox)) == inbox


def test_what_another_version_wrote_is_no_inbox() -> None:
    assert decode(b"x") is None
    assert decode(encode(Inbox(1))[:-1]) is None


def test_the_most_urgent_stand_first_and_of_equals_the_oldest() -> None:
    rows = [
        line(1, Kind.OVERDUE),
        line(2, Kind.WORKER_LOST),
        line(3, Kind.ORPHAN),
        line(5, Kind.ABANDONED),
        line(4, Kind.ABANDONED),
        line(6, Kind.WORKER_LOST, is_quarantined=True),
    ]
    assert [row.since for row in ordered(rows)] == [4, 5, 6, 3, 2, 1]
