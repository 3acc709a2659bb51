"""Stores incidents in the database: one row per lost job, from first sight to resolution.

Open incidents are cached too, so that a pass needs no query for them. After a failure they are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.db import transaction

from recovery.domain.audit.hash_chain import job_key
from recovery.domain.hooks.types import HookEvent
from recovery.domain.identifiers import QueueRef, printable, slug, unslug
from recovery.domain.stuck.types import Verdict, VerdictKind
from recovery.models import Incident
from recovery.reads.stuck.incidents import id_of
from recovery.reads.stuck.observations import JobFingerprint, JobObservation
from recovery.scanners.orphan_watch.resolution import NOBODY_KNOWN, STALLED_CHECK, IncidentResolution

BATCH = 500  # rows in one statement
OPENED = 5_000  # incidents opened by one pass: the rest is opened by the next ones, with its own first sight
_TEXT = 1_000  # characters of evidence
_HOLDER = 300
_SERVER = 400
# An action calls its hooks itself, and a job whose worker still had it was never lost.
_RECOVERED = (STALLED_CHECK, NOBODY_KNOWN)
_GRAVITY = {VerdictKind.UNLOCKED: 0, VerdictKind.WORKER_LOST: 1, VerdictKind.ORPHAN: 2, VerdictKind.ABANDONED: 3}


@dataclass(frozen=True, slots=True)
class OpenIncident:
    """Open incident in the cache. `signature` None: it is not known after a restart."""

    opened_at: int
    kind: VerdictKind
    is_proven: bool
    is_explained: bool = False  # its cause is stored
    signature: JobFingerprint | None = None
    missed_at: int | None = None  # the first pass that did not find it any more


@dataclass(frozen=True, slots=True)
class IncidentJob:
    """Job that has lost its worker, as this pass found it."""

    id: str
    opened_at: int
    kind: VerdictKind
    signature: JobFingerprint
    name: str = ""
    holder: str = ""
    server: str = ""


IncidentListener = Callable[[HookEvent, QueueRef, Sequence[str]], None]


def ignore_event(_event: HookEvent, _queue: QueueRef, _ids: Sequence[str]) -> None:
    """Ignores an event: the default listener."""


class IncidentStore:
    """Open incidents of all deployments. `hear` is called for jobs proven to be lost, and those that their library has
    recovered.
    """

    def __init__(self, hear: IncidentListener = ignore_event) -> None:
        self._hear = hear
        self._open: dict[QueueRef, dict[str, OpenIncident]] | None = None

    def load(self) -> None:
        """Loads incidents that an earlier process opened. Raises DatabaseError, as all methods do."""
        if self._open is None:
            self._open = {}
            for row in Incident.objects.filter(closed_at=None).iterator():
                queue = QueueRef(row.deployment, unslug(row.base))
                case = OpenIncident(row.opened_at, VerdictKind(row.kind), row.proven_at is not None, bool(row.cause))
                self._open.setdefault(queue, {})[id_of(row.job)] = case

    def forget(self) -> None:
        """Drops the cache after a failure, so that it is loaded again."""
        self._open = None

    def cases(self, queue: QueueRef) -> Mapping[str, OpenIncident]:
        return (self._open or {}).get(queue, {})

    def remind(self, queue: QueueRef, marks: Mapping[str, JobObservation]) -> None:
        """Adds the signatures of jobs whose incidents an earlier process opened."""
        held = (self._open or {}).get(queue, {})
        for id, case in held.items():
            if case.signature is None and id in marks:
                held[id] = replace(case, signature=marks[id].signature)

    def miss(self, queue: QueueRef, here: Container[str], now: int) -> dict[str, OpenIncident]:
        """Returns open incidents whose jobs are not among these, and notes since when: that is the time of resolution,
        however long the proof takes.
        """
        held = (self._open or {}).get(queue, {})
        for id, case in held.items():
            missed_at = None if id in here else case.missed_at or now
            if missed_at != case.missed_at:
                held[id] = replace(case, missed_at=missed_at)
        return {id: case for id, case in held.items() if case.missed_at is not None}

    def keep(self, queue: QueueRef, seen: Sequence[IncidentJob], verdicts: Mapping[str, Verdict], now: int) -> None:
        """Opens new incidents, and updates those with a graver verdict, a proof, or a cause."""
        known = self.cases(queue)
        fresh = [one for one in seen if one.id not in known][:OPENED]
        if fresh:
            rows = [_row(queue, one, verdicts.get(one.id), now) for one in fresh]
            Incident.objects.bulk_create(rows, batch_size=BATCH, ignore_conflicts=True)
        graver = [one for one in seen if (case := known.get(one.id)) and _is_news(case, one)]
        for kind in dict.fromkeys(one.kind for one in graver):
            self._raise(queue, [one.id for one in graver if one.kind is kind], kind, now)
        explained = [one for one in seen if self._explain(queue, one, known.get(one.id), verdicts.get(one.id))]
        lost = [one.id for one in (*fresh, *graver) if one.kind.is_orphaned and not _was_proven(known.get(one.id))]
        self._hold(queue, [*fresh, *graver, *explained], verdicts)
        self._hear(HookEvent.LOST, queue, lost)

    def _explain(self, queue: QueueRef, seen: IncidentJob, case: OpenIncident | None, verdict: Verdict | None) -> bool:
        """Stores the cause of an incident that was opened before it was known; returns True if it did."""
        if case is None or case.is_explained or verdict is None or not verdict.cause:
            return False
        mine = Incident.objects.filter(**_of(queue), job=job_key(seen.id), closed_at=None)
        mine.update(cause=verdict.cause, evidence=_evidence(verdict), **_who(seen))
        return True

    def close(self, queue: QueueRef, ends: Mapping[str, IncidentResolution], now: int) -> None:
        cases = self.cases(queue)
        groups: dict[tuple[IncidentResolution, int], list[str]] = {}
        for id, end in ends.items():
            groups.setdefault((end, cases[id].missed_at or now), []).append(id)
        with transaction.atomic():
            for (end, at), ids in groups.items():
                for part in _parts(ids):
                    mine = Incident.objects.filter(**_of(queue), job__in=part, closed_at=None)
                    if end.is_proof:
                        mine.filter(proven_at=None).update(proven_at=at)
                    mine.update(closed_at=at, resolved_by=end.by, audit=end.audit)
        recovered = [id for id, end in ends.items() if end.by in _RECOVERED]
        for id in ends:
            (self._open or {}).get(queue, {}).pop(id, None)
        self._hear(HookEvent.RECOVERED, queue, recovered)

    def _hold(self, queue: QueueRef, seen: Iterable[IncidentJob], verdicts: Mapping[str, Verdict]) -> None:
        if self._open is None:
            return
        held = self._open.setdefault(queue, {})
        for one in seen:
            old, verdict = held.get(one.id), verdicts.get(one.id)
            held[one.id] = OpenIncident(
                opened_at=old.opened_at if old else one.opened_at,
                kind=max(one.kind, old.kind, key=_GRAVITY.__getitem__) if old else one.kind,
                is_proven=one.kind.is_orphaned or bool(old and old.is_proven),
                is_explained=bool(verdict and verdict.cause) or bool(old and old.is_explained),
                signature=(old and old.signature) or one.signature,
            )

    def _raise(self, queue: QueueRef, ids: Sequence[str], kind: VerdictKind, now: int) -> None:
        for part in _parts(ids):
            mine = Incident.objects.filter(**_of(queue), job__in=part, closed_at=None)
            mine.update(kind=kind)
            if kind.is_orphaned:
                mine.filter(proven_at=None).update(proven_at=now)


def _is_news(case: OpenIncident, seen: IncidentJob) -> bool:
    """Returns True for a graver verdict or a first proof; the gravest verdict is kept."""
    return _GRAVITY[seen.kind] > _GRAVITY[case.kind] or (seen.kind.is_orphaned and not case.is_proven)


def _was_proven(case: OpenIncident | None) -> bool:
    return case is not None and case.is_proven


def _row(queue: QueueRef, seen: IncidentJob, verdict: Verdict | None, now: int) -> Incident:
    return Incident(
        **_of(queue),
        job=job_key(seen.id),
        kind=seen.kind,
        cause=verdict.cause if verdict else "",
        evidence=_evidence(verdict) if verdict else "",
        **_who(seen),
        opened_at=seen.opened_at,
        proven_at=now if seen.kind.is_orphaned else None,
    )


def _of(queue: QueueRef) -> dict[str, str]:
    return {"deployment": queue.deployment, "base": queue.slug}


def _parts(ids: Sequence[str]) -> Iterable[list[str]]:
    for start in range(0, len(ids), BATCH):
        yield [job_key(id) for id in ids[start : start + BATCH]]


def _who(seen: IncidentJob) -> dict[str, str]:
    """Returns name, worker and server as a database takes them: without NUL and invalid bytes."""
    return {
        "name": printable(seen.name)[:_HOLDER],
        "holder": printable(seen.holder)[:_HOLDER],
        "server": slug(seen.server)[:_SERVER],
    }


def _evidence(verdict: Verdict) -> str:
    return f"{verdict.why} {verdict.cause_evidence}".strip()[:_TEXT]
