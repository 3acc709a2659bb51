"""Assesses the active jobs of one queue: counts their kinds, updates their marks, and returns those that are stuck."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from recovery.domain.identifiers import decode_name
from recovery.domain.jobs import JobRow
from recovery.domain.stuck import job_rules
from recovery.domain.stuck.context import QUARANTINE_AFTER, LocklessObservation, ParentState, VerdictContext
from recovery.domain.stuck.holders import holder_server
from recovery.domain.stuck.outlook import JobOutlook, outlook_of_job
from recovery.domain.stuck.types import Verdict, VerdictKind, needs_a_person
from recovery.reads.stuck.observations import JobObservation
from recovery.reads.stuck.queries import is_lockless, job_fingerprint, sighting
from recovery.scanners.orphan_watch.queue_state import CandidateJob, QueueState

OrphanCountReader = Callable[[Sequence[str]], Mapping[str, int] | None]  # None: not known now


@dataclass(frozen=True, slots=True)
class AssessedJob:
    """Job that is stuck, or may be soon, with its mark and what was observed of it."""

    row: JobRow
    kind: VerdictKind
    mark: JobObservation
    sighting: LocklessObservation
    parent: ParentState

    @property
    def is_quarantined(self) -> bool:
        return (
            self.kind.is_lost and self.kind is not VerdictKind.UNLOCKED and self.mark.orphaned + 1 >= QUARANTINE_AFTER
        )

    @property
    def is_shown(self) -> bool:
        """Returns True if the job is listed. One pass without a lock is not enough: old libraries have such moments."""
        return bool(self.kind.urgency) and (self.kind is not VerdictKind.UNLOCKED or self.sighting.looks > 1)

    def verdict(self, around: VerdictContext, breaks: str = "") -> Verdict:
        return job_rules.verdict_for_job(
            self.row,
            around,
            sighting=self.sighting,
            parent=self.parent,
            orphaned=self.mark.orphaned,
            breaks=breaks,
        )

    def outlook(self, around: VerdictContext) -> JobOutlook:
        """Returns the predicted recovery by the state of the lock, whatever the job's data is like."""
        return outlook_of_job(self.kind, self.row, around, self.sighting, orphaned=self.mark.orphaned)

    def needs_a_person(self, ahead: JobOutlook) -> bool:
        """Returns the same as `Verdict.needs_a_person`, without building the verdict."""
        return needs_a_person(self.kind, ahead.at, ahead.rescuer, is_quarantined=self.is_quarantined)


def assess_queue(post: QueueState, around: VerdictContext, before: OrphanCountReader) -> list[AssessedJob]:
    """Assesses all jobs of a queue and stores the new marks. `before` returns how often jobs were orphaned earlier: it
    is called for newly lost jobs, and for quarantined ones, which a person may release.
    """
    counted: Counter[VerdictKind] = Counter()
    found: list[AssessedJob] = []
    simply_held = len(post.jobs) - len(post.found)
    if simply_held:
        counted[VerdictKind.RUNNING] = simply_held
    for one in post.found:
        id = decode_name(one.id)
        if id in post.found_moved:
            continue
        row = _row(post, one, id, around)
        if row is None:
            counted[_plain(one, around)] += 1
            continue
        found.append(_judge(post, row, around, is_sure=id in post.found_steady))
        counted[found[-1].kind] += 1
    found = _with_history(post, found, before)
    kept = {id: mark for id, mark in post.marks.items() if id in post.found_moved}
    post.keep(kept | {one.row.id: one.mark for one in found if _is_marked(one)})
    post.found_kinds = dict(counted)
    return [one for one in found if one.kind.urgency]


def _row(post: QueueState, one: CandidateJob, id: str, around: VerdictContext) -> JobRow | None:
    """Returns the row of a job; None for one that is simply running, as far as its lock shows."""
    if id in post.found_rows:
        return post.rows[id]
    return post.look_of(one) if post.is_settled(one, around) else None


def _plain(one: CandidateJob, around: VerdictContext) -> VerdictKind:
    if one.ttl is None:
        return VerdictKind.UNKNOWN
    return VerdictKind.LATE if job_rules.is_late(one.ttl, around) else VerdictKind.RUNNING


def _judge(post: QueueState, row: JobRow, around: VerdictContext, *, is_sure: bool) -> AssessedJob:
    old = post.marks.get(row.id)
    # Only what this process has followed itself counts: a mark may be older.
    seen = replace(sighting(row, old, around, is_sure=is_sure), has_expired=post.has_expired(row))
    parent = post.parents.get(row.parent, ParentState.NONE)
    kind = job_rules.verdict_kind(row, around, seen, parent)
    same = old is not None and (old.kind is VerdictKind.WORKER_LOST or old.signature == job_fingerprint(row))
    since = seen.since if is_lockless(row) else None
    is_known = (
        old and same and old.kind is kind and old.lockless_since == since and old.signature == job_fingerprint(row)
    )
    if old and is_known and old.has_expired == seen.has_expired:
        return AssessedJob(row, kind, old, seen, parent)
    lost_before = old is not None and same and old.kind.is_lost and kind.is_lost
    mark = JobObservation(
        kind=kind,
        since=old.since if old and (lost_before or (same and old.kind is kind)) else around.now,
        opened_at=old.opened_at if old and lost_before else around.now,
        lockless_since=since,
        signature=job_fingerprint(row),
        orphaned=old.orphaned if old else 0,
        cpu=old.cpu if old and lost_before else _load(row, kind, around),
        has_expired=seen.has_expired,
    )
    return AssessedJob(row, kind, mark, replace(seen, cpu=mark.cpu), parent)


def _load(row: JobRow, kind: VerdictKind, around: VerdictContext) -> float | None:
    """Returns the load of the server of its worker, for a job that has just lost it."""
    return around.loads.get(holder_server(row, around)) if kind.is_lost and around.loads else None


def _with_history(post: QueueState, found: list[AssessedJob], before: OrphanCountReader) -> list[AssessedJob]:
    """Adds earlier orphanings to jobs that are newly lost or quarantined."""
    asked = {
        one.row.id
        for one in found
        if one.is_quarantined
        or (one.kind.is_lost and (one.row.id not in post.marks or not post.marks[one.row.id].kind.is_lost))
    }
    times = before(sorted(asked)) if asked else None
    if times is None:
        return found
    return [
        replace(one, mark=replace(one.mark, orphaned=times.get(one.row.id, 0))) if one.row.id in asked else one
        for one in found
    ]


def _is_marked(one: AssessedJob) -> bool:
    return bool(one.kind.urgency) or one.mark.lockless_since is not None
