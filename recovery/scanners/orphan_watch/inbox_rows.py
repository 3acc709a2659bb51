"""Makes the rows of the inbox: the most urgent stuck jobs, with their names and verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from recovery.backends.base import CommandClient
from recovery.backends.redis_common import active_jobs
from recovery.config import Config
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobLock, JobRow
from recovery.domain.stuck.causes import lost_instance
from recovery.domain.stuck.context import VerdictContext
from recovery.domain.stuck.holders import holder_server
from recovery.domain.stuck.inbox import ROW_LIMIT
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.reads.stuck.observations import JobFingerprint
from recovery.scanners.orphan_watch.assessment import AssessedJob
from recovery.scanners.orphan_watch.payload_checks import PayloadChecks

QUEUES_AT_ONCE = 100  # queues whose jobs are read in detail by one pass: two round trips each

_Key = tuple[VerdictKind, JobFingerprint]


@dataclass(frozen=True, slots=True)
class _Detail:
    key: _Key
    row: JobRow


class InboxRows:
    """Rows of one deployment. Details of a job are read once, and again when its kind or signature has changed."""

    def __init__(self, config: Config) -> None:
        self._shapes = PayloadChecks(config)
        self._details: dict[JobRef, _Detail] = {}

    def of(
        self, wire: CommandClient, found: Sequence[AssessedJob], around: Mapping[QueueRef, VerdictContext], now: int
    ) -> tuple[StuckJob, ...]:
        """Returns the rows of the most urgent jobs, at most ROW_LIMIT; raises StoreError."""
        chosen = sorted((one for one in found if one.is_shown), key=_order)[:ROW_LIMIT]
        self._read(wire, chosen)
        broken = self._shapes.of(wire, chosen, now)
        together = Counter((one.row.ref.queue, one.mark.lockless_since) for one in found)
        return tuple(
            self._line(one, around[one.row.ref.queue], together, broken.get(one.row.ref, "")) for one in chosen
        )

    def _read(self, wire: CommandClient, chosen: Sequence[AssessedJob]) -> None:
        here = {one.row.ref: (one.kind, one.mark.signature) for one in chosen}
        self._details = {ref: kept for ref, kept in self._details.items() if here.get(ref) == kept.key}
        wanted = sorted(ref for ref in here if ref not in self._details)
        groups = [(queue, list(refs)) for queue, refs in groupby(wanted, key=lambda ref: ref.queue)]
        for queue, refs in groups[:QUEUES_AT_ONCE]:
            read = active_jobs.details(wire, queue, [ref.id for ref in refs])
            self._details |= {ref: _Detail(here[ref], row) for ref, row in zip(refs, read, strict=True)}

    def _line(
        self, one: AssessedJob, around: VerdictContext, together: Mapping[tuple[QueueRef, int | None], int], breaks: str
    ) -> StuckJob:
        lost = together[one.row.ref.queue, one.mark.lockless_since] if one.mark.lockless_since is not None else 0
        row = self._row(one)
        return StuckJob(
            job=row.ref,
            name=row.name,
            verdict=one.verdict(replace(around, lost_together=lost), breaks),
            since=one.mark.since,
            holder=_holder(one, row, around),
            row=row,
            server=holder_server(row, around),
        )

    def _row(self, one: AssessedJob) -> JobRow:
        """Returns the details of a job, with the lock that it was assessed by."""
        detail = self._details.get(one.row.ref)
        if detail is None:
            return one.row
        if one.row.lock is None:
            return replace(detail.row, lock=None, missing=one.row.missing)
        token = detail.row.lock.token if detail.row.lock else ""
        return replace(detail.row, lock=JobLock(token, one.row.lock.ttl), missing=one.row.missing)


def _holder(one: AssessedJob, row: JobRow, around: VerdictContext) -> str:
    if not around.unnamed:
        return row.worker
    return lost_instance(row, around, one.sighting.since) if one.kind.is_lost or one.kind is VerdictKind.LATE else ""


def _order(one: AssessedJob) -> tuple[int, int, JobRef]:
    urgency = 8 if one.is_quarantined and one.kind is not VerdictKind.ABANDONED else one.kind.urgency
    return -urgency, one.mark.since, one.row.ref
