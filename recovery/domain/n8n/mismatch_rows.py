"""Adds mismatches to the inbox as rows, beside the stuck jobs that the orphan watch found.

A job that is there already keeps its line, with what its execution says added to the evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison, N8nRelease
from recovery.domain.n8n.mismatch_text import EXECUTION
from recovery.domain.stuck.inbox import ROW_LIMIT, StuckInbox, StuckTally, most_urgent_first
from recovery.domain.stuck.outlook import text_for_n8n_version
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.domain.time_units import MINUTE, age

STALE = 3 * MINUTE  # an older comparison adds no rows; the page of the comparison shows its age


def merge_mismatches(inbox: StuckInbox, truths: Collection[N8nComparison], names: Collection[str] = ()) -> StuckInbox:
    """Returns the inbox with the fresh mismatches added. `names`: installations with a database, each of which should
    have a comparison. One that is missing or failed is added to the inbox's faults, so that an empty list does not mean
    that all is clear.
    """
    known = {row.job: row for row in inbox.rows}
    added: dict[QueueRef, int] = Counter()
    rows: list[StuckJob] = []
    for truth in truths:
        if truth.fault or inbox.checked_at - truth.checked_at > STALE:
            continue
        known |= {job: _versioned(row, truth.release) for job, row in known.items() if truth.owns(job.queue)}
        told = [pair for pair in truth.pairs if pair.finding and pair.finding.kind.needs_a_person]
        for line in (_line(truth, pair) for pair in told):
            if line.has_job and line.job in known:
                known[line.job] = _noted(known[line.job], line)
            else:
                rows.append(line)
                added[line.job.queue] += 1
        added[truth.queue] += truth.people - len(told)
    listed = most_urgent_first([*(known[row.job] for row in inbox.rows), *rows])[:ROW_LIMIT]
    tallies = tuple(_tallied(tally, added.pop(tally.queue, 0)) for tally in inbox.queues)
    fresh = (_tallied(StuckTally(queue, checked_at=inbox.checked_at), count) for queue, count in added.items() if count)
    faults = (fault for name in names if (fault := _fault(name, truths, inbox.checked_at)))
    return replace(inbox, rows=tuple(listed), queues=(*tallies, *fresh), faults=(*inbox.faults, *faults))


def _fault(name: str, truths: Iterable[N8nComparison], now: int) -> str:
    truth = next((one for one in truths if one.name == name), None)
    if truth is None:
        return f"The jobs and executions of {name} have not been compared yet."
    if truth.fault:
        return f"The jobs and executions of {name} could not be compared: {truth.fault}"
    old = now - truth.checked_at
    return f"The jobs and executions of {name} were last compared {age(old)} ago." if old > STALE else ""


def _line(truth: N8nComparison, pair: JobExecutionPair) -> StuckJob:
    finding, claim = pair.finding, pair.claim
    evidence = (finding.kind.sentence, *finding.evidence) if finding else ()
    suggests = finding.repair.of_job if finding else None
    why = next((cause for cause in LossCause if finding and cause.value == finding.cause), LossCause.UNKNOWN)
    verdict = Verdict(VerdictKind.N8N, evidence, why, fate=finding.fate if finding else "", suggests=suggests)
    is_live = claim is not None and claim.is_live
    return StuckJob(
        job=claim.job if claim is not None and is_live else JobRef(truth.queue, ""),
        name=pair.title,
        verdict=verdict,
        since=(finding.since if finding else None) or 0,
        holder=claim.holder if claim else "",
        execution=pair.id,
    )


def _noted(row: StuckJob, line: StuckJob) -> StuckJob:
    """Adds what the execution says to the row of a job that is listed already, and the repair that fits both."""
    said = (sentence for sentence in line.verdict.evidence if sentence.startswith(EXECUTION))
    verdict = replace(row.verdict, evidence=(*row.verdict.evidence, *said))
    return replace(row, verdict=with_fitting_repair(verdict, line.verdict.suggests), execution=line.execution)


def with_fitting_repair(verdict: Verdict, fits: Action | None) -> Verdict:
    """Returns the verdict with the repair that fits the execution. A quarantined job is never to be requeued."""
    is_risky = fits is Action.REQUEUE and verdict.is_quarantined
    return replace(verdict, suggests=fits) if fits and verdict.of_lock.is_orphaned and not is_risky else verdict


def _versioned(row: StuckJob, release: N8nRelease) -> StuckJob:
    fate = text_for_n8n_version(row.verdict.fate, fails_stalled=release.fails_stalled)
    return replace(row, verdict=replace(row.verdict, fate=fate)) if fate != row.verdict.fate else row


def _tallied(tally: StuckTally, count: int) -> StuckTally:
    if not count:
        return tally
    kinds = {**tally.kinds, VerdictKind.N8N: tally.kinds.get(VerdictKind.N8N, 0) + count}
    return replace(tally, kinds=kinds, people=tally.people + count)
