"""What is left of the promises of scanners while none of them puts anything right."""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import StuckJob, Verdict, VerdictKind

QUEUE = QueueRef("main", "bull:mail")
WHY = "main does not answer"


def left(kind: VerdictKind, watchdog: StalledCheckState) -> tuple[Verdict, StuckTally]:
    told = Verdict(kind, fate="Orphan-watch requeues it within 5 s.", until=1_000, rescuer=PolicyScanner.ORPHAN_WATCH)
    tally = StuckTally(
        QUEUE, {kind: 1}, watchdog=watchdog, outlook=QueueOutlook(1, 1, 1_000, PolicyScanner.ORPHAN_WATCH)
    )
    inbox = StuckInbox(0, (StuckJob(QUEUE.job("1"), "mail", told, 0),), (tally,)).unpromised(WHY)
    return inbox.rows[0].verdict, inbox.queues[0]


def test_where_no_stalled_check_runs_nobody_is_left() -> None:
    told, tally = left(VerdictKind.ABANDONED, StalledCheckState(is_dead=True, recovers_within=9))
    assert told.fate == f"Never recovered in the current state. Orphan-watch is enabled, but {WHY}."
    assert (told.until, told.rescuer, told.needs_a_person) == (None, None, True)
    assert (tally.people, tally.outlook, tally.watchdog.recovers_within) == (1, QueueOutlook(), None)


def test_the_stalled_check_of_a_worker_still_comes() -> None:
    told, tally = left(VerdictKind.ORPHAN, StalledCheckState(interval=30_000, recovers_within=9))
    assert told.fate == f"A worker's stalled check picks it up. Orphan-watch is enabled, but {WHY}."
    assert (told.until, told.rescuer, told.needs_a_person) == (31_000, None, False)
    assert (tally.people, tally.watchdog.recovers_within) == (0, 9)
