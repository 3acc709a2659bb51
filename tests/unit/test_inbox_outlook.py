"""What is left of the promises of scanners while none of them puts anything right."""

from __future__ import annotations

from recovery.domain.inbox import Inbox, Tally, Watchdog
from recovery.domain.outlook import QueueOutlook
from recovery.domain.policy import Scanner
from recovery.domain.refs import QueueRef
from recovery.domain.verdicts import Kind, Stuck, Verdict

QUEUE = QueueRef("main", "bull:mail")
WHY = "main does not answer"


def left(kind: Kind, watchdog: Watchdog) -> tuple[Verdict, Tally]:
    told = Verdict(kind, fate="Orphan-watch requeues it within 5 s.", until=1_000, rescuer=Scanner.ORPHAN_WATCH)
    tally = Tally(QUEUE, {kind: 1}, watchdog=watchdog, outlook=QueueOutlook(1, 1, 1_000, Scanner.ORPHAN_WATCH))
    inbox = Inbox(0, (Stuck(QUEUE.job("1"), "mail", told, 0),), (tally,)).unpromised(WHY)
    return inbox.rows[0].verdict, inbox.queues[0]


def test_where_no_stalled_check_runs_nobody_is_left() -> None:
    told, tally = left(Kind.ABANDONED, Watchdog(is_dead=True, recovers_within=9))
    assert told.fate == f"Never recovered in the current state. Orphan-watch is enabled, but {WHY}."
    assert (told.until, told.rescuer, told.needs_a_person) == (None, None, True)
    assert (tally.people, tally.outlook, tally.watchdog.recovers_within) == (1, QueueOutlook(), None)


def test_the_stalled_check_of_a_worker_still_comes() -> None:
    told, tally = left(Kind.ORPHAN, Watchdog(interval=30_000, recovers_within=9))
    assert told.fate == f"A worker's stalled check picks it up. Orphan-watch is enabled, but {WHY}."
    assert (told.until, told.rescuer, told.needs_a_person) == (31_000, None, False)
    assert (tally.people, tally.watchdog.recovers_within) == (0, 9)
