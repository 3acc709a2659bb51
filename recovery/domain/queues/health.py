"""Finds what is wrong right now, and says it in up to three sentences.

Rules of truth: a sentence is said only when every fact in it is known. A queue that could not be read, or whose
deployment does not answer, says nothing of itself. "No worker" needs two witnesses, because a worker may hide its name:
none is listed, and no worker has run the stalled check lately. That a deployment does not answer is shown by the frame
around every page, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import JobCounts, QueueLibrary, QueueSample, Snapshot
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import VerdictKind as Verdict
from recovery.domain.time_units import MINUTE, age

CONCERN_LIMIT = 3  # more sentences are not read at 3 a.m.
LATE_AFTER = 15 * MINUTE  # a job that waits longer than this is worth a sentence
RATE_WINDOW = 60  # minutes over which a failure rate is taken
RATE_FLOOR = 20  # finished jobs below which a rate says nothing
RATE_ALARM = 0.5


class QueueProblemKind(IntEnum):
    """Kinds of problems, gravest first; also the order of the sentences."""

    ABANDONED = 1  # active jobs, and no worker to run or recover them
    UNATTENDED = 2  # jobs wait, and no worker takes them
    FAILING = 3
    PAUSED = 4
    LATE = 5


@dataclass(frozen=True, slots=True)
class QueueProblem:
    """A problem as one sentence: `lead` names what, `name` where, `rest` its meaning. `others`: queues sharing it."""

    kind: QueueProblemKind
    lead: str
    name: str
    rest: str
    queue: QueueRef
    size: int  # how many jobs (or ms) it is about; the largest of a kind is shown
    others: int = 0
    is_rescued: bool = False  # a scanner recovers it, so no person has to

    @property
    def tone(self) -> str:
        return "stuck" if self.kind is QueueProblemKind.ABANDONED and not self.is_rescued else "warn"


def queue_problems(
    snapshot: Snapshot, *, deployment: str = "", limit: int = CONCERN_LIMIT, inbox: StuckInbox | None = None
) -> tuple[QueueProblem, ...]:
    """Returns the gravest problems of all deployments or one: one of each kind, that of the largest case.

    `inbox` is what the last check of active jobs has proven.
    """
    kinds: dict[QueueProblemKind, list[QueueProblem]] = {}
    for concern in _of_queues(snapshot, deployment, tallies(inbox)):
        kinds.setdefault(concern.kind, []).append(concern)
    return tuple(_told(kinds[kind]) for kind in sorted(kinds))[:limit]


def problem_kind(sample: QueueSample, now: int, tally: StuckTally | None = None) -> QueueProblemKind | None:
    """Returns the gravest kind of problem of one readable queue, or None."""
    return next((kind for kind, _ in _kinds(sample, now, tally)), None)


def tallies(inbox: StuckInbox | None) -> Mapping[QueueRef, StuckTally]:
    """Returns the counts of stuck jobs of each queue that could be checked."""
    return {tally.queue: tally for tally in inbox.queues if not tally.error} if inbox else {}


def ready(counts: JobCounts) -> int | None:
    """Returns how many jobs a worker could take now. A state that this library does not have counts as empty."""
    if counts.waiting is None:
        return None
    return counts.waiting + (counts.prioritized or 0) + (counts.paused or 0)


def failure_rate(sample: QueueSample) -> float | None:
    """Returns the share of the last hour's finished jobs that failed; None when unknown or when none finished."""
    completed, failed = _finished(sample)
    if completed is None or failed is None or not completed + failed:
        return None
    return failed / (completed + failed)


def has_no_worker(sample: QueueSample) -> bool:
    return sample.workers == 0 and sample.stalled_check_ttl is None


def _told(same: list[QueueProblem]) -> QueueProblem:
    worst = max(same, key=lambda concern: (not concern.is_rescued, concern.size))
    return replace(worst, others=len(same) - 1)


def _of_queues(snapshot: Snapshot, deployment: str, known: Mapping[QueueRef, StuckTally]) -> Iterator[QueueProblem]:
    silent = {found.name for found in snapshot.deployments if found.error}
    for sample in snapshot.queues:
        if sample.error or sample.ref.deployment in silent or deployment not in ("", sample.ref.deployment):
            continue
        for _, sentence in _kinds(sample, snapshot.taken_at, known.get(sample.ref)):
            yield sentence()
            break  # one sentence a queue: its gravest


def _kinds(
    sample: QueueSample, now: int, tally: StuckTally | None
) -> Iterator[tuple[QueueProblemKind, Callable[[], QueueProblem]]]:
    backlog, active = ready(sample.counts) or 0, sample.counts.active or 0
    abandoned = tally.kinds.get(Verdict.ABANDONED, 0) if tally else 0
    if active and abandoned:
        yield (
            QueueProblemKind.ABANDONED,
            lambda: _proven(sample, abandoned, tally.outlook if tally else QueueOutlook(), now),
        )
    elif active and has_no_worker(sample):
        yield QueueProblemKind.ABANDONED, lambda: _unproven(sample, active, backlog, tally, now)
    if backlog and has_no_worker(sample) and sample.is_paused is False:
        yield QueueProblemKind.UNATTENDED, lambda: _unattended(sample, backlog, now)
    if _fails(sample):
        yield QueueProblemKind.FAILING, lambda: _failing(sample)
    if backlog and sample.is_paused:
        yield QueueProblemKind.PAUSED, lambda: _paused(sample, backlog, now)
    if sample.oldest_waiting_at is not None and now - sample.oldest_waiting_at > LATE_AFTER and not sample.is_paused:
        yield QueueProblemKind.LATE, lambda: _late(sample, backlog, now)


def _unproven(sample: QueueSample, active: int, backlog: int, tally: StuckTally | None, now: int) -> QueueProblem:
    """Builds the problem for active jobs without a worker that are not proven lost: they may still have locks."""
    more = f" {backlog:,} more {_verb(backlog, 'wait')}." if backlog else ""
    is_rescued = tally is not None and not tally.people and tally.outlook.until is not None
    rescue = f"whether {'it recovers' if active == 1 else 'they recover'} is not known yet"
    if tally is not None:
        rescue = replace(tally.outlook, rescued=active if is_rescued else 0).words(active, now)
    lead = f"{_jobs(active)} {'is' if active == 1 else 'are'} active in"
    told = _concern(QueueProblemKind.ABANDONED, sample, lead, f"and no worker is connected: {rescue}.{more}", active)
    return replace(told, is_rescued=is_rescued)


def _proven(sample: QueueSample, abandoned: int, outlook: QueueOutlook, now: int) -> QueueProblem:
    why = "while no worker is connected" if sample.workers == 0 else "because no worker runs the stalled check"
    if sample.flavour.library is QueueLibrary.TABLE:
        why = "because no scanner checks this table"
    lead = f"{_jobs(abandoned)} {'is' if abandoned == 1 else 'are'} abandoned in"
    told = _concern(QueueProblemKind.ABANDONED, sample, lead, f"{why}: {outlook.words(abandoned, now)}.", abandoned)
    return replace(told, is_rescued=outlook.rescued >= abandoned)


def _unattended(sample: QueueSample, backlog: int, now: int) -> QueueProblem:
    rest = f"and no worker is connected to take {'it' if backlog == 1 else 'them'}.{_oldest(sample, now)}"
    return _concern(QueueProblemKind.UNATTENDED, sample, f"{_jobs(backlog)} {_verb(backlog, 'wait')} in", rest, backlog)


def _failing(sample: QueueSample) -> QueueProblem:
    completed, failed = _finished(sample)
    total = (completed or 0) + (failed or 0)
    rest = f"failed in the last hour: {failed:,} of {total:,}."
    return _concern(
        QueueProblemKind.FAILING, sample, f"{100 * (failed or 0) // total} % of the jobs of", rest, failed or 0
    )


def _paused(sample: QueueSample, backlog: int, now: int) -> QueueProblem:
    rest = f"is paused while {_jobs(backlog)} {_verb(backlog, 'wait')}.{_oldest(sample, now)}"
    return _concern(QueueProblemKind.PAUSED, sample, "Queue", rest, backlog)


def _late(sample: QueueSample, backlog: int, now: int) -> QueueProblem:
    waited = now - (sample.oldest_waiting_at or now)
    busy = f" {sample.workers:,} worker{'s' * (sample.workers != 1)} for {_jobs(backlog)}." if sample.workers else ""
    return _concern(QueueProblemKind.LATE, sample, "The oldest job of", f"has waited for {age(waited)}.{busy}", waited)


def _concern(kind: QueueProblemKind, sample: QueueSample, lead: str, rest: str, size: int) -> QueueProblem:
    return QueueProblem(kind, lead, sample.ref.label, rest, sample.ref, size)


def _fails(sample: QueueSample) -> bool:
    completed, failed = _finished(sample)
    if completed is None or failed is None or completed + failed < RATE_FLOOR:
        return False
    return failed / (completed + failed) >= RATE_ALARM


def _finished(sample: QueueSample) -> tuple[int | None, int | None]:
    return _sum(sample.rates.completed), _sum(sample.rates.failed)


def _sum(minutes: tuple[int | None, ...]) -> int | None:
    """Returns the sum over the window, of the minutes that are known; None when none is."""
    known = [count for count in minutes[:RATE_WINDOW] if count is not None]
    return sum(known) if known else None


def _oldest(sample: QueueSample, now: int) -> str:
    return "" if sample.oldest_waiting_at is None else f" The oldest since {age(now - sample.oldest_waiting_at)}."


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' * (count != 1)}"


def _verb(count: int, verb: str) -> str:
    return f"{verb}s" if count == 1 else verb
