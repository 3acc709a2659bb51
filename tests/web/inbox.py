"""The inbox as the watch publishes it, of lines that a test wants in it."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.connections import registry
from recovery.domain.acting import Act
from recovery.domain.inbox import Inbox, Tally, Watchdog
from recovery.domain.jobs import JobRow, State
from recovery.domain.outlook import QueueOutlook
from recovery.domain.refs import QueueRef
from recovery.domain.verdicts import Cause, Kind, Stuck, Verdict
from recovery.reads import inboxes
from tests.watching import now_ms
from tests.web.acting import BASE
from tests.web.conftest import Desk

NOBODY = "Nothing happens: no worker is connected."


def stuck(
    id: str, kind: Kind = Kind.ABANDONED, *, base: str = BASE, name: str = "send", server: str = "", **facts: object
) -> Stuck:
    told = {
        "evidence": ("Worker mail-3 lost its connection 4 min ago.",),
        "cause": Cause.CRASHED,
        "cause_evidence": "exit 137",
        "fate": NOBODY,
        "suggests": Act.REQUEUE if kind.is_orphaned else Act.RELEASE,
    } | facts
    ref = QueueRef("main", base).job(id)
    row = JobRow(ref, State.ACTIVE, name, processed_at=now_ms() - 60_000)
    verdict = Verdict(kind, **told)  # type: ignore[arg-type] # facts
    return Stuck(ref, name, verdict, now_ms() - 240_000, "mail-3", row, server=server)


def found(
    desk: Desk, lines: Iterable[Stuck] = (), *, age: int = 1000, looked: int = 25, error: str = "", more: int = 0
) -> None:
    """`more`: counted, and not listed."""
    lines = tuple(lines)
    at = now_ms() - age
    tallies = []
    for ref in dict.fromkeys(line.job.queue for line in lines) or [QueueRef("main", BASE)]:
        kinds = [line.verdict.kind for line in lines if line.job.queue == ref]
        counted = {kind: kinds.count(kind) + more for kind in set(kinds)}
        promised = sum(line.verdict.rescuer is not None for line in lines if line.job.queue == ref)
        dog = Watchdog(at, 30_000, bool(promised), 45_000)  # a scanner promises where no stalled check runs
        ahead = QueueOutlook(promised=promised)
        people = sum(line.verdict.needs_a_person for line in lines if line.job.queue == ref)
        tallies.append(Tally(ref, counted, people, looked, 0, at, dog, error, ahead))
    inboxes.publish(registry.registry().state(), Inbox(at, lines, tuple(tallies)))
    desk.forget()
