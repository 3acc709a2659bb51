"""What is stuck: the inbox as the orphan-watch published it, and verdicts on rows that somebody looks at now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recovery.backends.bullmq.parents import parents
from recovery.backends.shared import actives
from recovery.config import Config
from recovery.connections.registry import registry
from recovery.domain import judging
from recovery.domain.counts import Library, Snapshot
from recovery.domain.holders import Holder, holder
from recovery.domain.inbox import Inbox
from recovery.domain.jobs import JobRow, State
from recovery.domain.rescuers import Rescuers
from recovery.domain.surroundings import Parent, Sighting, Surroundings
from recovery.domain.verdicts import Verdict
from recovery.errors import ConfigError, StoreError
from recovery.reads import inboxes, incidents, payloads, schemas, sightings, surroundings, tables, whereabouts
from recovery.reads.lists import Queue
from recovery.reads.policies import Book
from recovery.reads.rescuers import Lookout
from recovery.reads.shared import windows
from recovery.reads.sightings import Mark, Memory, Signature

_WAITING = frozenset({State.WAITING, State.PRIORITIZED, State.PAUSED, State.DELAYED, State.WAITING_CHILDREN})


def newest() -> Inbox | None:
    """The newest inbox, read from the state store once a second; None when there is none, or the store is silent."""
    try:
        return windows.get(("inbox",), lambda: inboxes.fetch(registry().state()))
    except (ConfigError, StoreError):
        return None


def needing_a_person() -> int | None:
    """How many jobs nothing but a person will put right; None when nobody has looked."""
    inbox = newest()
    return None if inbox is None else inbox.people


def of_rows(
    queue: Queue,
    rows: Sequence[JobRow],
    snapshot: Snapshot | None,
    now: int,
    *,
    config: Config | None = None,
    insists: bool = False,
) -> dict[str, Verdict]:
    """A verdict for every active row; for one that still waits only when it is a stray. By id.

    It takes a row as it was read: jobs that have no lock are looked at once more, for sure. Who `insists` is to act on
    it: raises NotRecorded when it is not known what is poison.
    """
    if queue.flavour.library is Library.TABLE:
        return _of_table(queue, rows, now, config or registry().config, insists=insists)
    active = [row for row in rows if row.state is State.ACTIVE]
    families = _parents(queue, rows)
    found = {
        row.id: verdict
        for row in rows
        if row.state in _WAITING and (verdict := judging.stray(row, families.get(row.parent, Parent.NONE)))
    }
    if active:
        around, marks = _known(queue, active, snapshot, config or registry().config, now)
        around = replace(around, rescuers=_rescuers(queue, now))
        sure = _sure(queue, active, marks, around)
        before = _orphaned(queue, active, around, now, insists=insists)
        breaks = _breaks(queue, active, config)
        for row in active:
            found[row.id] = judging.verdict(
                row,
                around,
                sighting=sighting(row, marks.get(row.id), around, is_sure=row.id in sure),
                parent=families.get(row.parent, Parent.NONE),
                orphaned=before.get(row.id, 0),
                breaks=breaks.get(row.id, ""),
            )
    return found


def _of_table(queue: Queue, rows: Sequence[JobRow], now: int, config: Config, *, insists: bool) -> dict[str, Verdict]:
    """Of running rows; nothing but the row itself tells how it stands."""
    lost = tables.lost(rows)
    return tables.of_rows(
        rows,
        tables.terms(config, queue.ref, now, tables.book(config) if lost else Book()),
        orphaned=tables.orphaned(queue.ref, lost, now, insists=insists),
        breaks=_breaks(queue, [row for row in rows if row.state is State.ACTIVE], config),
    )


def malformed(queue: Queue, rows: Sequence[JobRow], *, config: Config | None = None) -> dict[str, Verdict]:
    """Of those among these jobs whose data breaks the schema of their queue. None of them is active."""
    return {id: judging.malformed(breaks) for id, breaks in _breaks(queue, rows, config).items()}


def around(queue: Queue, snapshot: Snapshot, config: Config, now: int) -> Surroundings:
    """What is known around the jobs of this queue."""
    return _known(queue, (), snapshot, config, now)[0]


def signature(row: JobRow) -> Signature:
    """What changes with everything that happens to an active job but the loss of its lock."""
    return row.processed_at, row.starts, row.attempts, row.stalls


def sighting(row: JobRow, mark: Mark | None, around: Surroundings, *, is_sure: bool) -> Sighting:
    """This look together with the earlier ones. A mark of a job that has moved since counts for nothing."""
    if mark is None or mark.lockless_since is None or mark.signature != signature(row):
        return Sighting(around.now, is_atomic=is_sure)
    looks = 2 if around.now > mark.lockless_since else 1
    return Sighting(min(mark.lockless_since, around.now), looks, is_sure, mark.cpu)


def is_lockless(row: JobRow) -> bool:
    """Without a lock, or with one that no library makes."""
    return row.lock_known and (row.lock is None or row.lock.ttl is None)


def _breaks(queue: Queue, rows: Sequence[JobRow], config: Config | None) -> Mapping[str, str]:
    schema = (config or registry().config).schema_of(queue.ref.deployment, queue.ref.base)
    if schema is None:
        return {}
    ids = [row.id for row in rows if not row.missing]
    if queue.flavour.library is Library.TABLE:
        data = payloads.data_of(queue, ids)
        return {id: said for id, one in data.items() if (said := schemas.breaks(schema, one))}
    return schemas.broken(queue.wire, queue.ref, ids, schema)


def _known(
    queue: Queue, rows: Sequence[JobRow], snapshot: Snapshot | None, config: Config, now: int
) -> tuple[Surroundings, Mapping[str, Mark]]:
    """Without a state store nothing is remembered, and less can be said."""
    memory, restarted_at, marks = Memory(), None, dict[str, Mark]()
    try:
        store = registry().state()
        memory, restarted_at = sightings.memory(store, queue.ref)
        marks = sightings.marks_of(store, queue.ref, [row.id for row in rows if is_lockless(row)])
    except (ConfigError, StoreError):
        pass
    sample = surroundings.sample_of(snapshot, queue.ref) if snapshot else None
    if snapshot is None or sample is None:
        return surroundings.unknown(queue.ref, queue.flavour, config, now), marks
    workers = [worker for worker in snapshot.workers if worker.queue == queue.ref]
    around = surroundings.around(
        sample,
        workers,
        memory,
        config,
        now,
        taken_at=snapshot.taken_at,
        restarted_at=restarted_at,
        where=whereabouts.known(),
    )
    return around, marks


def _rescuers(queue: Queue, now: int) -> Rescuers:
    """Asked once a second, however many look at jobs of this queue."""
    return windows.get(("rescuers", queue.ref), lambda: Lookout(registry(), now).of(queue.ref, queue.flavour))


def _sure(queue: Queue, rows: Sequence[JobRow], marks: Mapping[str, Mark], around: Surroundings) -> set[str]:
    """Jobs without a lock that are so for sure. Where it takes two sightings anyway, nothing is asked."""
    doubtful = [row.id for row in rows if row.lock_known and row.lock is None and row.id not in marks]
    if around.has_window or not doubtful:
        return set()
    suspects = actives.position(queue.wire, queue.ref, doubtful)
    seen = actives.sights(queue.wire, suspects) if suspects else []
    return {sight.row.id for sight in seen if sight and sight.is_sure}


def _parents(queue: Queue, rows: Sequence[JobRow]) -> Mapping[str, Parent]:
    if queue.flavour.library is not Library.BULLMQ:
        return {}
    return parents(queue.wire, queue.ref, (row.parent for row in rows))


def _orphaned(
    queue: Queue, rows: Sequence[JobRow], around: Surroundings, now: int, *, insists: bool
) -> Mapping[str, int]:
    """Of those that may be in an incident."""
    wanted = [row.id for row in rows if is_lockless(row) or row.stalls or holder(row, around) is Holder.GONE]
    return incidents.suffered_before(queue.ref, wanted, now, insists=insists)
