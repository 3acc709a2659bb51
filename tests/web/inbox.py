"""The inbox as the watch publishes it, of lines that a test wants in it."""

from __future__ import annotations

from collections.abc import Iterable

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.reads.stuck import inbox_store
from recovery.stores import registry
from tests.support.stuck.watching import now_ms
from tests.web.acting import BASE
from tests.web.conftest import Desk

NOBODY = "Nothing happens: no worker is connected."


def stuck(
    id: str,
    kind: VerdictKind = VerdictKind.ABANDONED,
    *,
    base: str = BASE,
    name: str = "send",
    server: str = "",
    **facts: object,
) -> StuckJob:
    told = {
        "evidence": ("Worker mail-3 lost its connection 4 min ago.",),
        "cause": LossCause.CRASHED,
        "cause_evidence": "exit 137",
        "fate": NOBODY,
        "suggests": Action.REQUEUE if kind.is_orphaned else Action.RELEASE,
    } | facts
    ref = QueueRef("main", base).job(id)
    row = JobRow(ref, JobState.ACTIVE, name, processed_at=now_ms() - 60_000)
    verdict = Verdict(kind, **told)  # type: ignore[arg-type] # facts
    return StuckJob(ref, name, verdict, now_ms() - 240_000, "mail-3", row, server=server)


def found(
    desk: Desk, lines: Iterable[StuckJob] = (), *, age: int = 1000, looked: int = 25, error: str = "", more: int = 0
) -> None:
    """`more`: counted, and not listed."""
    lines = tuple(lines)
    at = now_ms() - age
    tallies = []
    for ref in dict.fromkeys(line.job.queue for line in lines) or [QueueRef("main", BASE)]:
        kinds = [line.verdict.kind for line in lines if line.job.queue == ref]
        counted = {kind: kinds.count(kind) + more for kind in set(kinds)}
        promised = sum(line.verdict.rescuer is not None for line in lines if line.job.queue == ref)
        dog = StalledCheckState(at, 30_000, bool(promised), 45_000)  # a scanner promises where no stalled check runs
        ahead = QueueOutlook(promised=promised)
        people = sum(line.verdict.needs_a_person for line in lines if line.job.queue == ref)
        tallies.append(StuckTally(ref, counted, people, looked, 0, at, dog, error, ahead))
    inbox_store.publish(registry.registry().state(), StuckInbox(at, lines, tuple(tallies)))
    desk.forget()
