"""Reads stuck jobs: the inbox as the orphan watch published it, and verdicts on rows that were read just now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import redis

from recovery.backends.bullmq.parents import parents
from recovery.backends.shared import actives
from recovery.config import Config
from recovery.connections.registry import registry
from recovery.domain import judging
from recovery.domain.blockers import Blocker
from recovery.domain.counts import Library, Snapshot
from recovery.domain.holders import Holder, holder
from recovery.domain.inbox import Inbox, Tally
from recovery.domain.jobs import JobRow, State
from recovery.domain.n8n import lines
from recovery.domain.refs import QueueRef
from recovery.domain.rescuers import Armed
from recovery.domain.surroundings import Parent, Sighting, Surroundings
from recovery.domain.tuning.versions import Version
from recovery.domain.verdicts import Kind, Verdict
from recovery.errors import ConfigError, StoreError
from recovery.reads import inboxes, incidents, leading, payloads, schemas, sightings, surroundings, tables, whereabouts
from recovery.reads.lists import Queue
from recovery.reads.n8n import instances, truths
from recovery.reads.rescuers import Lookout
from recovery.reads.shared import windows
from recovery.reads.sightings import Mark, Memory, Signature

_WAITING = frozenset({State.WAITING, State.PRIORITIZED, State.PAUSED, State.DELAYED, State.WAITING_CHILDREN})


@dataclass(frozen=True, slots=True)
class InboxUnavailable:
    """Reason why there is no inbox: no pass was made yet, or the store that holds it does not answer (`fault`)."""

    text: str
    advice: str
    fault: StoreError | ConfigError | None = None


NOT_LOOKED = InboxUnavailable(
    "Stuck jobs have not been checked yet.",
    "The scheduler checks every active job every few seconds. If this message stays, no scheduler is running.",
)


def newest() -> Inbox | None:
    """Returns the newest inbox, read from the state store once a second; None if there is none, or the store is silent.

    While no scheduler leads, its predictions of recovery by scanners are withdrawn.
    """
    found = looked()
    return found if isinstance(found, Inbox) else None


def looked() -> Inbox | InboxUnavailable:
    """Returns the newest inbox, or why there is none."""
    try:
        return windows.get(("inbox",), lambda: _newest(registry().state())) or NOT_LOOKED
    except ConfigError as error:
        return InboxUnavailable("Stuck jobs are unknown: the configuration cannot be used.", str(error), error)
    except StoreError as error:
        text = f"Stuck jobs are unknown: the state store cannot be read. {error}."
        return InboxUnavailable(text, error.advice, error)


def _newest(store: redis.Redis) -> Inbox | None:
    inbox, sign = inboxes.fetch(store), leading.fetch(store)
    if inbox is None:
        return None
    is_led = leading.is_led(sign)
    if is_led:
        return inbox
    return inbox.unpromised((Blocker.STATE if is_led is None else Blocker.NO_LEADER).value)


def count(ref: QueueRef, kind: Kind) -> int | None:
    """Counts the active jobs of a queue with this verdict; orphans include abandoned ones. None: not checked yet."""
    inbox = newest()
    if inbox is None:
        return None
    tally = inbox.tally(ref) or Tally(ref)  # the others had nothing active
    return tally.orphans if kind is Kind.ORPHAN else tally.kinds.get(kind, 0)


def longest_lock(ref: QueueRef) -> int:
    """Returns the longest TTL in ms that the orphan watch saw on a lock of this queue: locks last at least so long.

    0 if it has seen none. Read from the state store once a second.
    """
    try:
        return windows.get(("longest lock", ref), lambda: sightings.memory(registry().state(), ref)[0].lock_length)
    except (ConfigError, StoreError):
        return 0


def of_rows(
    queue: Queue,
    rows: Sequence[JobRow],
    snapshot: Snapshot | None,
    now: int,
    *,
    config: Config | None = None,
    insists: bool = False,
) -> dict[str, Verdict]:
    """Returns verdicts by id: for every active row, and for a waiting row only if it is a stray.

    Rows are taken as they were read; jobs without a lock are read once more, to be sure. An action passes `insists`:
    then it raises NotRecorded if it is unknown which jobs are quarantined.
    """
    if queue.flavour.library is Library.TABLE:
        return _of_table(queue, rows, snapshot, now, config or registry().config, insists=insists)
    active = [row for row in rows if row.state is State.ACTIVE]
    families = _parents(queue, rows)
    found = {
        row.id: verdict
        for row in rows
        if row.state in _WAITING and (verdict := judging.stray(row, families.get(row.parent, Parent.NONE)))
    }
    if active:
        around, marks = _known(queue, active, snapshot, config or registry().config, now)
        around = _predicted(queue, around, snapshot)
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
        found = _advised(queue.ref, found) if around.is_n8n else found
    return found


def _advised(ref: QueueRef, found: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Adds to each verdict the repair that fits its execution, as far as n8n's newest table shows it."""
    fitting = truths.repairs(ref)
    return {id: lines.advised(verdict, fitting.get(id)) for id, verdict in found.items()}


def _of_table(
    queue: Queue, rows: Sequence[JobRow], snapshot: Snapshot | None, now: int, config: Config, *, insists: bool
) -> dict[str, Verdict]:
    """Returns verdicts on the running rows of a job table; the row itself is the only evidence."""
    lost = tables.lost(rows)
    sweep = sweep_of(queue.ref, snapshot, now) if lost else None
    inbox = newest()
    tally = inbox.tally(queue.ref) if inbox else None
    return tables.of_rows(
        rows,
        tables.terms(config, queue.ref, now, sweep, lost=tally.lost if tally else len(lost)),
        orphaned=tables.orphaned(queue.ref, lost, now, insists=insists),
        breaks=_breaks(queue, [row for row in rows if row.state is State.ACTIVE], config),
    )


def sweep_of(table: QueueRef, snapshot: Snapshot | None, now: int) -> Armed | None:
    """Returns the startup sweep if it puts lost rows of a job table back, read once a second; None: it does not."""
    return windows.get(("sweep", table), lambda: Lookout(registry(), now, snapshot).sweep(table))


def malformed(queue: Queue, rows: Sequence[JobRow], *, config: Config | None = None) -> dict[str, Verdict]:
    """Returns verdicts on the jobs whose data violates the schema of their queue; none of the jobs is active."""
    return {id: judging.malformed(breaks) for id, breaks in _breaks(queue, rows, config).items()}


def around(queue: Queue, snapshot: Snapshot, config: Config, now: int) -> Surroundings:
    """Returns the context that verdicts on jobs of this queue need."""
    return _predicted(queue, _known(queue, (), snapshot, config, now)[0], snapshot)


def signature(row: JobRow) -> Signature:
    """Returns values that change with everything that happens to an active job, except the loss of its lock."""
    return row.processed_at, row.starts, row.attempts, row.stalls


def sighting(row: JobRow, mark: Mark | None, around: Surroundings, *, is_sure: bool) -> Sighting:
    """Combines this observation with the earlier ones. The mark of a job that has moved since is ignored."""
    if mark is None or mark.lockless_since is None or mark.signature != signature(row):
        return Sighting(around.now, is_atomic=is_sure)
    looks = 2 if around.now > mark.lockless_since else 1
    return Sighting(min(mark.lockless_since, around.now), looks, is_sure, mark.cpu, mark.has_expired)


def is_lockless(row: JobRow) -> bool:
    """Tells whether a job has no lock, or one without a TTL, which no library makes."""
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
    """Reads the context and the marks. Without a state store there are no marks, and verdicts are less certain."""
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
        n8n_version=_n8n_version(queue.ref, config),
    )
    return around, marks


def _n8n_version(ref: QueueRef, config: Config) -> Version | None:
    n8n = config.n8n_of(ref)
    return instances.version(n8n.name) if n8n else None


def _predicted(queue: Queue, around: Surroundings, snapshot: Snapshot | None) -> Surroundings:
    """Adds which scanners would recover its lost jobs; read once a second, however many viewers the queue has."""
    ref, flavour = queue.ref, queue.flavour
    key = ("rescuers", ref)
    rescuers = windows.get(key, lambda: Lookout(registry(), around.now, snapshot).of(ref, flavour))
    inbox = newest()
    tally = inbox.tally(ref) if inbox else None
    truth = truths.of_queue(ref) if around.is_n8n else None
    fails = truth.release.fails_stalled if truth else None
    return replace(around, rescuers=rescuers, lost=tally.lost if tally else 0, fails_stalled=fails)


def _sure(queue: Queue, rows: Sequence[JobRow], marks: Mapping[str, Mark], around: Surroundings) -> set[str]:
    """Returns the jobs that certainly have no lock. Where a verdict takes two observations anyway, nothing is read."""
    bare = [row for row in rows if row.lock_known and row.lock is None and row.id not in marks]
    if around.has_window or not bare:
        return set()
    sure, doubtful = {row.id for row in bare if row.is_one_moment}, [row.id for row in bare if not row.is_one_moment]
    if not doubtful:
        return sure
    suspects = actives.position(queue.wire, queue.ref, doubtful)
    seen = actives.sights(queue.wire, suspects) if suspects else []
    return sure | {sight.row.id for sight in seen if sight and sight.is_sure}


def _parents(queue: Queue, rows: Sequence[JobRow]) -> Mapping[str, Parent]:
    if queue.flavour.library is not Library.BULLMQ:
        return {}
    return parents(queue.wire, queue.ref, (row.parent for row in rows))


def _orphaned(
    queue: Queue, rows: Sequence[JobRow], around: Surroundings, now: int, *, insists: bool
) -> Mapping[str, int]:
    """Counts earlier incidents of the jobs that may be in one now."""
    wanted = [row.id for row in rows if is_lockless(row) or row.stalls or holder(row, around) is Holder.GONE]
    return incidents.suffered_before(queue.ref, wanted, now, insists=insists)
