"""Closes incidents that were left open: of deployments and queues that are gone, and of jobs that recovered while
the orphan watch was not running.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from recovery.connections.registry import Registry
from recovery.domain.ages import age
from recovery.domain.counts import Library, Snapshot
from recovery.domain.refs import QueueRef, unslug
from recovery.domain.scans import Find
from recovery.errors import DeploymentMissing, QueueMissing, StoreError
from recovery.models import Incident
from recovery.reads import lists
from recovery.reads.incidents import id_of
from recovery.reads.lists import Queue
from recovery.scanners.watching.resolution import NOBODY_KNOWN, REMOVED, Lost, Resolved, resolved

AT_ONCE = 1_000  # incidents checked in one run, the oldest first
CLOSED = "The incident was closed: {why}."
_NOT_CONFIGURED = "its deployment is no longer configured"
_GONE = "its queue is gone"
_MOVED = "its job is no longer stuck"


class LeftOpen:
    """Closer of incidents. The orphan watch closes ended ones within seconds, so an incident of an existing queue
    counts as left open only if the check before this one found its job recovered too.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._ended: set[int] = set()  # incidents whose jobs had recovered at the last check

    def close(self, snapshot: Snapshot, queue: QueueRef | None, after: int, now: int) -> tuple[Find, ...]:
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
    ) -> Iterator[Find]:
        """Closes the incidents of one queue; a queue that does not answer keeps them."""
        try:
            self._registry.config.deployment(ref.deployment)
            found = lists.locate(ref, snapshot)
        except DeploymentMissing:
            yield from _closed(ref, rows, dict.fromkeys(_ids(rows), Resolved(NOBODY_KNOWN)), _NOT_CONFIGURED, now)
        except QueueMissing:
            yield from _closed(ref, rows, dict.fromkeys(_ids(rows), Resolved(REMOVED)), _GONE, now)
        except StoreError:
            return
        else:
            ends = {} if found.flavour.library is Library.TABLE else _ends(found, rows, now)
            ended = [row for row in rows if id_of(row.job) in ends]
            self._ended.update(row.pk for row in ended)
            yield from _closed(ref, [row for row in ended if row.pk in before], ends, _MOVED, now)


def _ends(queue: Queue, rows: Sequence[Incident], now: int) -> dict[str, Resolved]:
    lost = [Lost(id_of(row.job), row.opened_at) for row in rows]
    try:
        return resolved(queue.wire, queue.ref, lost, now, has_events=queue.flavour.library is Library.BULLMQ)
    except StoreError:
        return {}


def _closed(ref: QueueRef, rows: Sequence[Incident], ends: dict[str, Resolved], why: str, now: int) -> Iterator[Find]:
    for row in rows:
        end = ends.get(id_of(row.job))
        if end is None:
            continue
        mine = Incident.objects.filter(pk=row.pk, closed_at=None)
        if mine.update(closed_at=now, resolved_by=end.by, audit=end.audit):
            what = f"Incident {row.pk} was left open for {age(now - row.opened_at)}."
            yield Find(ref.job(id_of(row.job)), what, CLOSED.format(why=why))


def _ids(rows: Sequence[Incident]) -> list[str]:
    return [id_of(row.job) for row in rows]
