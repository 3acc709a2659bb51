"""Reads stuck jobs: the inbox as the orphan watch published it, and verdicts on rows that were read just now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import redis

from recovery.backends.bullmq.parents import parents
from recovery.backends.redis_common import active_jobs
from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.n8n import mismatch_rows
from recovery.domain.n8n.versions import Version
from recovery.domain.policies.enabled_scanners import EnabledScanner
from recovery.domain.queues.types import QueueLibrary, Snapshot
from recovery.domain.scanners.blockers import Blocker
from recovery.domain.stuck import job_rules
from recovery.domain.stuck.context import LocklessObservation, ParentState, VerdictContext
from recovery.domain.stuck.holders import HolderPresence, holder_presence
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import Verdict, VerdictKind
from recovery.errors import ConfigError, StoreError
from recovery.n8n import comparison_store, instance_store
from recovery.reads.queues import payloads
from recovery.reads.queues.job_lists import Queue
from recovery.reads.scanners import scheduler_status
from recovery.reads.scanners.forecast import ScannerForecast
from recovery.reads.stuck import inbox_store, incidents, observations, payload_schemas, table_verdicts, verdict_context
from recovery.reads.stuck.observations import JobFingerprint, JobObservation, QueueObservation
from recovery.servers import address_queries
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import windows

_WAITING = frozenset(
    {JobState.WAITING, JobState.PRIORITIZED, JobState.PAUSED, JobState.DELAYED, JobState.WAITING_CHILDREN}
)


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


def newest_inbox() -> StuckInbox | None:
    """Returns the newest inbox, read from the state store once a second; None if there is none, or the store is silent.

    While no scheduler leads, its predictions of recovery by scanners are withdrawn.
    """
    found = inbox_or_reason()
    return found if isinstance(found, StuckInbox) else None


def inbox_or_reason() -> StuckInbox | InboxUnavailable:
    """Returns the newest inbox, or why there is none."""
    try:
        return windows.get(("inbox",), lambda: _newest(registry().state())) or NOT_LOOKED
    except ConfigError as error:
        return InboxUnavailable("Stuck jobs are unknown: the configuration cannot be used.", str(error), error)
    except StoreError as error:
        text = f"Stuck jobs are unknown: the state store cannot be read. {error}."
        return InboxUnavailable(text, error.advice, error)


def _newest(store: redis.Redis) -> StuckInbox | None:
    inbox, sign = inbox_store.fetch(store), scheduler_status.fetch(store)
    if inbox is None:
        return None
    is_led = scheduler_status.is_led(sign)
    if is_led:
        return inbox
    return inbox.unpromised((Blocker.STATE if is_led is None else Blocker.NO_LEADER).value)


def count(ref: QueueRef, kind: VerdictKind) -> int | None:
    """Counts the active jobs of a queue with this verdict; orphans include abandoned ones. None: not checked yet."""
    inbox = newest_inbox()
    if inbox is None:
        return None
    tally = inbox.tally(ref) or StuckTally(ref)  # the others had nothing active
    return tally.orphans if kind is VerdictKind.ORPHAN else tally.kinds.get(kind, 0)


def longest_lock(ref: QueueRef) -> int:
    """Returns the longest TTL in ms that the orphan watch saw on a lock of this queue: locks last at least so long.

    0 if it has seen none. Read from the state store once a second.
    """
    try:
        return windows.get(("longest lock", ref), lambda: observations.memory(registry().state(), ref)[0].lock_length)
    except (ConfigError, StoreError):
        return 0


def verdicts_of_rows(
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
    if queue.flavour.library is QueueLibrary.TABLE:
        return _of_table(queue, rows, snapshot, now, config or registry().config, insists=insists)
    active = [row for row in rows if row.state is JobState.ACTIVE]
    families = _parents(queue, rows)
    found = {
        row.id: verdict
        for row in rows
        if row.state in _WAITING
        and (verdict := job_rules.stray_verdict(row, families.get(row.parent, ParentState.NONE)))
    }
    if active:
        around, marks = _known(queue, active, snapshot, config or registry().config, now)
        around = _predicted(queue, around, snapshot)
        sure = _sure(queue, active, marks, around)
        before = _orphaned(queue, active, around, now, insists=insists)
        breaks = _breaks(queue, active, config)
        for row in active:
            found[row.id] = job_rules.verdict_for_job(
                row,
                around,
                sighting=sighting(row, marks.get(row.id), around, is_sure=row.id in sure),
                parent=families.get(row.parent, ParentState.NONE),
                orphaned=before.get(row.id, 0),
                breaks=breaks.get(row.id, ""),
            )
        found = _advised(queue.ref, found) if around.is_n8n else found
    return found


def _advised(ref: QueueRef, found: Mapping[str, Verdict]) -> dict[str, Verdict]:
    """Adds to each verdict the repair that fits its execution, as far as n8n's newest table shows it."""
    fitting = comparison_store.repairs(ref)
    return {id: mismatch_rows.with_fitting_repair(verdict, fitting.get(id)) for id, verdict in found.items()}


def _of_table(
    queue: Queue, rows: Sequence[JobRow], snapshot: Snapshot | None, now: int, config: Config, *, insists: bool
) -> dict[str, Verdict]:
    """Returns verdicts on the running rows of a job table; the row itself is the only evidence."""
    lost = table_verdicts.lost_rows(rows)
    sweep = sweep_of(queue.ref, snapshot, now) if lost else None
    inbox = newest_inbox()
    tally = inbox.tally(queue.ref) if inbox else None
    return table_verdicts.verdicts_of_rows(
        rows,
        table_verdicts.terms(config, queue.ref, now, sweep, lost=tally.lost if tally else len(lost)),
        orphaned=table_verdicts.orphaned(queue.ref, lost, now, insists=insists),
        breaks=_breaks(queue, [row for row in rows if row.state is JobState.ACTIVE], config),
    )


def sweep_of(table: QueueRef, snapshot: Snapshot | None, now: int) -> EnabledScanner | None:
    """Returns the startup sweep if it puts lost rows of a job table back, read once a second; None: it does not."""
    return windows.get(("sweep", table), lambda: ScannerForecast(registry(), now, snapshot).sweep(table))


def malformed(queue: Queue, rows: Sequence[JobRow], *, config: Config | None = None) -> dict[str, Verdict]:
    """Returns verdicts on the jobs whose data violates the schema of their queue; none of the jobs is active."""
    return {id: job_rules.malformed_verdict(breaks) for id, breaks in _breaks(queue, rows, config).items()}


def verdict_context_of(queue: Queue, snapshot: Snapshot, config: Config, now: int) -> VerdictContext:
    """Returns the context that verdicts on jobs of this queue need."""
    return _predicted(queue, _known(queue, (), snapshot, config, now)[0], snapshot)


def job_fingerprint(row: JobRow) -> JobFingerprint:
    """Returns values that change with everything that happens to an active job, except the loss of its lock."""
    return row.processed_at, row.starts, row.attempts, row.stalls


def sighting(row: JobRow, mark: JobObservation | None, around: VerdictContext, *, is_sure: bool) -> LocklessObservation:
    """Combines this observation with the earlier ones. The mark of a job that has moved since is ignored."""
    if mark is None or mark.lockless_since is None or mark.signature != job_fingerprint(row):
        return LocklessObservation(around.now, is_atomic=is_sure)
    looks = 2 if around.now > mark.lockless_since else 1
    return LocklessObservation(min(mark.lockless_since, around.now), looks, is_sure, mark.cpu, mark.has_expired)


def is_lockless(row: JobRow) -> bool:
    """Tells whether a job has no lock, or one without a TTL, which no library makes."""
    return row.lock_known and (row.lock is None or row.lock.ttl is None)


def _breaks(queue: Queue, rows: Sequence[JobRow], config: Config | None) -> Mapping[str, str]:
    schema = (config or registry().config).schema_of(queue.ref.deployment, queue.ref.base)
    if schema is None:
        return {}
    ids = [row.id for row in rows if not row.missing]
    if queue.flavour.library is QueueLibrary.TABLE:
        data = payloads.data_of(queue, ids)
        return {id: said for id, one in data.items() if (said := payload_schemas.describe_violation(schema, one))}
    return payload_schemas.find_violations(queue.wire, queue.ref, ids, schema)


def _known(
    queue: Queue, rows: Sequence[JobRow], snapshot: Snapshot | None, config: Config, now: int
) -> tuple[VerdictContext, Mapping[str, JobObservation]]:
    """Reads the context and the marks. Without a state store there are no marks, and verdicts are less certain."""
    memory, restarted_at, marks = QueueObservation(), None, dict[str, JobObservation]()
    try:
        store = registry().state()
        memory, restarted_at = observations.memory(store, queue.ref)
        marks = observations.marks_of(store, queue.ref, [row.id for row in rows if is_lockless(row)])
    except (ConfigError, StoreError):
        pass
    sample = verdict_context.sample_of(snapshot, queue.ref) if snapshot else None
    if snapshot is None or sample is None:
        return verdict_context.unknown_context(queue.ref, queue.flavour, config, now), marks
    workers = [worker for worker in snapshot.workers if worker.queue == queue.ref]
    around = verdict_context.build_context(
        sample,
        workers,
        memory,
        config,
        now,
        taken_at=snapshot.taken_at,
        restarted_at=restarted_at,
        where=address_queries.address_map(),
        n8n_version=_n8n_version(queue.ref, config),
    )
    return around, marks


def _n8n_version(ref: QueueRef, config: Config) -> Version | None:
    n8n = config.n8n_of(ref)
    return instance_store.version(n8n.name) if n8n else None


def _predicted(queue: Queue, around: VerdictContext, snapshot: Snapshot | None) -> VerdictContext:
    """Adds which scanners would recover its lost jobs; read once a second, however many viewers the queue has."""
    ref, flavour = queue.ref, queue.flavour
    key = ("rescuers", ref)
    rescuers = windows.get(key, lambda: ScannerForecast(registry(), around.now, snapshot).of(ref, flavour))
    inbox = newest_inbox()
    tally = inbox.tally(ref) if inbox else None
    truth = comparison_store.fresh_comparison(ref) if around.is_n8n else None
    fails = truth.release.fails_stalled if truth else None
    return replace(around, rescuers=rescuers, lost=tally.lost if tally else 0, fails_stalled=fails)


def _sure(
    queue: Queue, rows: Sequence[JobRow], marks: Mapping[str, JobObservation], around: VerdictContext
) -> set[str]:
    """Returns the jobs that certainly have no lock. Where a verdict takes two observations anyway, nothing is read."""
    bare = [row for row in rows if row.lock_known and row.lock is None and row.id not in marks]
    if around.has_window or not bare:
        return set()
    sure, doubtful = {row.id for row in bare if row.is_one_moment}, [row.id for row in bare if not row.is_one_moment]
    if not doubtful:
        return sure
    suspects = active_jobs.position(queue.wire, queue.ref, doubtful)
    seen = active_jobs.read_consistently(queue.wire, suspects) if suspects else []
    return sure | {sight.row.id for sight in seen if sight and sight.is_sure}


def _parents(queue: Queue, rows: Sequence[JobRow]) -> Mapping[str, ParentState]:
    if queue.flavour.library is not QueueLibrary.BULLMQ:
        return {}
    return parents(queue.wire, queue.ref, (row.parent for row in rows))


def _orphaned(
    queue: Queue, rows: Sequence[JobRow], around: VerdictContext, now: int, *, insists: bool
) -> Mapping[str, int]:
    """Counts earlier incidents of the jobs that may be in one now."""
    wanted = [
        row.id for row in rows if is_lockless(row) or row.stalls or holder_presence(row, around) is HolderPresence.GONE
    ]
    return incidents.known_orphan_counts(queue.ref, wanted, now, insists=insists)
