"""Closes incidents that were left open: of deployments and queues that are gone, and of jobs that recovered while
the orphan watch was not running.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from recovery.domain.identifiers import QueueRef, unslug
from recovery.domain.queues.types import QueueLibrary, Snapshot
from recovery.domain.scanners.types import ScannerFinding
from recovery.domain.time_units import age
from recovery.errors import DeploymentMissing, QueueMissing, StoreError
from recovery.models import Incident
from recovery.reads.queues import job_lists
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck.incidents import id_of
from recovery.scanners.orphan_watch.resolution import (
    NOBODY_KNOWN,
    REMOVED,
    IncidentResolution,
    UnresolvedJob,
    resolve_incidents,
)
from recovery.stores.registry import ConnectionRegistry

AT_ONCE = 1_000  # incidents checked in one run, the oldest first
CLOSED = "The incident was closed: {why}."
_NOT_CONFIGURED = "its deployment is no longer configured"
_GONE = "its queue is gone"
_MOVED = "its job is no longer stuck"


class UnclosedIncidents:
    """Closer of incidents. The orphan watch closes ended ones within seconds, so an incident of an existing queue
    counts as left open only if the check before this one found its job recovered too.
    """

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry
        self._ended: set[int] = set()  # incidents whose jobs had recovered at the last check

    def close(self, snapshot: Snapshot, queue: QueueRef | None, after: int, now: int) -> tuple[ScannerFinding, ...]:
        """Closes incidents that have been open for longer than `after` and are over. Raises Error of the database."""
        opened = Incident.objects.filter(closed_at=None, opened_at__lte=now - after).order_by("opened_at")
        if queue is not None:
            opened = opened.filter(deployment=queue.deployment, base=queue.slug)
        groups: dict[QueueRef, list[Incident]] = {}
        for row in opened[:AT_ONCE]:
            groups.setdefault(QueueRef(row.deployment, unslug(row.base)), []).append(row)
        before, self._ended = self._ended, set()
        return tuple(find for ref, rows in groups.items() for find in self._queue(snapshot, ref, rows, before, now))

    def _queue(
        self, snapshot: Snapshot, ref: QueueRef, rows: Sequence[Incident], before: Container[int], now: int
    ) -> Iterator[ScannerFinding]:
        """Closes the incidents of one queue; a queue that does not answer keeps them."""
        try:
            self._registry.config.deployment(ref.deployment)
            found = job_lists.locate(ref, snapshot)
        except DeploymentMissing:
            yield from _closed(
                ref, rows, dict.fromkeys(_ids(rows), IncidentResolution(NOBODY_KNOWN)), _NOT_CONFIGURED, now
            )
        except QueueMissing:
            yield from _closed(ref, rows, dict.fromkeys(_ids(rows), IncidentResolution(REMOVED)), _GONE, now)
        except StoreError:
            return
        else:
            ends = {} if found.flavour.library is QueueLibrary.TABLE else _ends(found, rows, now)
            ended = [row for row in rows if id_of(row.job) in ends]
            self._ended.update(row.pk for row in ended)
            yield from _closed(ref, [row for row in ended if row.pk in before], ends, _MOVED, now)


def _ends(queue: Queue, rows: Sequence[Incident], now: int) -> dict[str, IncidentResolution]:
    lost = [UnresolvedJob(id_of(row.job), row.opened_at) for row in rows]
    try:
        return resolve_incidents(
            queue.wire, queue.ref, lost, now, has_events=queue.flavour.library is QueueLibrary.BULLMQ
        )
    except StoreError:
        return {}


def _closed(
    ref: QueueRef, rows: Sequence[Incident], ends: dict[str, IncidentResolution], why: str, now: int
) -> Iterator[ScannerFinding]:
    for row in rows:
        end = ends.get(id_of(row.job))
        if end is None:
            continue
        mine = Incident.objects.filter(pk=row.pk, closed_at=None)
        if mine.update(closed_at=now, resolved_by=end.by, audit=end.audit):
            what = f"Incident {row.pk} was left open for {age(now - row.opened_at)}."
            yield ScannerFinding(ref.job(id_of(row.job)), what, CLOSED.format(why=why))


def _ids(rows: Sequence[Incident]) -> list[str]:
    return [id_of(row.job) for row in rows]
