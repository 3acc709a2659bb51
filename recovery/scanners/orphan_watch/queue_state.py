"""State of one queue kept between two passes of the orphan watch, and what the current pass found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from recovery.backends.redis_common.active_jobs import ENDLESS, NO_KEY, WINDOW, ActiveWindow, ConsistentJobRead
from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.jobs import JobLock, JobRow
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.queues.types import QueueLibrary, QueueSample
from recovery.domain.stuck.context import ParentState, VerdictContext
from recovery.domain.stuck.job_rules import is_late
from recovery.domain.stuck.lock_expiry import LockExpiry, LockObservation, follow_lock
from recovery.domain.stuck.types import VerdictKind
from recovery.reads.stuck.observations import JobObservation, QueueObservation
from recovery.reads.stuck.queries import job_fingerprint
from recovery.reads.stuck.verdict_context import renewed_above
from recovery.scanners.orphan_watch.active_jobs import REFUSED, ActiveJobs, LockPlan

FACTS_LIFE = 60_000  # ms until a start is read again: a job may end and run again between two passes
LOCK_MEMORY = 600_000  # ms: when no lock has been nearly as long for this time, the workers' setting has changed
HOLDERS_TOLD = 500  # workers of one queue: what the page of a server can still count
SOON = 2_500  # ms: a snapshot later
RHYTHM_ASKED = 2_000  # locks of one queue of n8n that are all read at each pass, to measure the renewal interval
RHYTHM_MEMORY = 60_000  # ms: when no renewal has come at the known interval for this time, the setting has changed
_NEARLY = 0.9
_LOCK_LENGTH = 60_000  # ms, where none was seen yet: twice the default of the libraries
_NOTICED = 10_000  # ms: two passes
_SAME_END = 1_000  # ms that the end of a lock may seem to move without a renewal


@dataclass(slots=True)
class CandidateJob:
    """Active job that may be stuck, as its list and its lock show it. `ttl` None: Redis refused the read."""

    id: bytes
    window: ActiveWindow
    rank: int  # jobs before it in the active list, which are older
    ttl: int | None = None


@dataclass(slots=True)
class QueueState:
    """State of one queue kept between two passes. Fields that begin with `found` are of the current pass only."""

    ref: QueueRef
    sample: QueueSample
    memory: QueueObservation = field(default_factory=QueueObservation)
    marks: dict[str, JobObservation] = field(default_factory=dict)
    written: dict[str, JobObservation] = field(default_factory=dict)  # marks as the state store has them
    jobs: ActiveJobs = field(default_factory=ActiveJobs)
    rows: dict[str, JobRow] = field(default_factory=dict)  # of marked jobs, as last seen
    ends: dict[str, int] = field(default_factory=dict)  # when the locks of jobs whose worker is lost end
    expiries: dict[str, LockExpiry] = field(default_factory=dict)  # locks that are not renewed, as passes follow them
    parents: dict[str, ParentState] = field(default_factory=dict)
    was_late: bool = False  # a lock had missed a renewal at the last pass
    found: list[CandidateJob] = field(default_factory=list)  # jobs that may be stuck, as far as lock and facts tell
    found_kinds: dict[VerdictKind, int] = field(default_factory=dict)
    found_rows: set[str] = field(default_factory=set)  # read a second time
    found_steady: set[str] = field(default_factory=set)  # of those, the ones that did not move meanwhile
    found_moved: set[str] = field(default_factory=set)  # not where they were when they were looked at again
    found_error: str = ""
    skipped_until: int = 0  # its list is too long to be read, which is not tried at every pass
    skipped_for: str = ""

    def begin(self, sample: QueueSample) -> None:
        self.sample = sample
        self.found, self.found_kinds = [], {}
        self.found_rows, self.found_steady, self.found_moved = set(), set(), set()
        self.found_error = ""

    def end(self) -> None:
        """Ends a pass: notes which jobs had a lock."""
        if not self.found_error:
            self.jobs.hold()

    def holders(self) -> dict[str, int]:
        """Returns the number of locked jobs of each worker that is named in them, of the workers with the most."""
        if self.found_error:
            return {}
        held = self.jobs.by_worker().copy()
        held.subtract(self.jobs.workers[one.rank] for one in self.found if not self.jobs.has(one.rank))
        del held[""]
        return {worker: jobs for worker, jobs in held.most_common(HOLDERS_TOLD) if jobs > 0}

    @property
    def late_below(self) -> float:
        """Smallest TTL (ms) of a lock that has missed no renewal, estimated before the pass knows the workers."""
        return self.memory.lock_length * renewed_above(self.ref, self.sample.flavour, self.memory)

    def plan_locks(self, now: int, stride: int) -> LockPlan:
        """Plans of which locks this pass reads the TTL, and of which only the existence.

        All TTLs are read after a worker has left or a renewal was missed. In a queue of Bull a lock that is due is
        never left out: only one that was followed proves an orphan.
        """
        is_bull = self.sample.flavour.library is QueueLibrary.BULL
        is_measured = self._is_n8n and len(self.jobs) <= RHYTHM_ASKED
        if not self.memory.lock_length or is_measured or self.was_late or self.has_lost_a_worker(now):
            return LockPlan(range(len(self.jobs)), ())
        marked = {encode_name(id) for id in (*self.marks, *self.expiries)}
        return self.jobs.plan(now + round(self.late_below) + 1, marked, 1 if is_bull else stride)

    def has_lost_a_worker(self, now: int) -> bool:
        """Returns True if a worker left since the existing locks were renewed."""
        left = self.memory.left
        return bool(left) and now - left[-1].at <= (self.memory.lock_length or _LOCK_LENGTH) + _NOTICED

    def learn_locks(self, now: int) -> None:
        """Learns the length of locks from the longest TTL, the nearest to it that Redis shows."""
        longest, memory = self.jobs.longest, self.memory
        if self.found_error or longest <= 0:
            return
        if longest >= memory.lock_length * _NEARLY:
            self.memory = replace(memory, lock_length=max(longest, memory.lock_length), lock_seen_at=now)
        elif now - memory.lock_seen_at > LOCK_MEMORY:
            self.memory = replace(memory, lock_length=longest, lock_seen_at=now)

    def learn_rhythm(self, now: int) -> None:
        """Learns the interval at which workers renew locks, from how far the end of a lock moves between two passes.

        Only for n8n, whose jobs are never retried: the lock of a job that was taken again moves by any time. A worker
        that stalled for a moment moves one end too far, so an interval that others confirm stays.
        """
        seen, memory = self.jobs.renewal, self.memory
        if self.found_error or not seen or not self._is_n8n:
            return
        if memory.renews_every and abs(seen - memory.renews_every) <= memory.renews_every * (1 - _NEARLY):
            self.memory = replace(memory, renewal_seen_at=now)
        elif not memory.renews_every or now - memory.renewal_seen_at > RHYTHM_MEMORY:
            self.memory = replace(memory, renews_every=seen, renewal_seen_at=now)

    @property
    def _is_n8n(self) -> bool:
        return is_n8n(self.ref, self.sample.flavour)

    def has_just_lost_a_worker(self, now: int) -> bool:
        """Returns True if this pass noticed that a worker left."""
        return bool(self.memory.left) and self.memory.left[-1].at == now

    def learn_watchdog(self, taken_at: int) -> None:
        memory, ttl = self.memory, self.sample.stalled_check_ttl
        since = taken_at if memory.watched_since is None else memory.watched_since
        if ttl is None:
            self.memory = replace(memory, watched_since=since)
        else:
            interval = max(memory.interval, ttl)
            self.memory = replace(memory, watched_since=since, watchdog_seen_at=taken_at, interval=interval)

    def set_apart(self, around: VerdictContext) -> None:
        """Finds jobs that may be stuck. Only for these there are objects."""
        jobs = self.jobs
        below = around.lock_length * around.renewed_above if around.lock_length else 0
        told = list(jobs.told(below))
        self.was_late = any(jobs.ttls[at] >= 0 for at in told)
        if around.nobody_is_here:
            places: Iterable[int] = range(len(jobs))
        else:
            marked = jobs.places({encode_name(id) for id in self.marks})
            places = sorted({*told, *marked, *self._odd_places(around)})
        self.found = [self._at(at) for at in places]

    def _at(self, at: int) -> CandidateJob:
        ttl = self.jobs.ttls[at]
        window = ActiveWindow(self.ref, at // WINDOW * WINDOW)
        return CandidateJob(self.jobs.ids[at], window, at, None if ttl == REFUSED else ttl)

    def is_suspect(self, one: CandidateJob, around: VerdictContext) -> bool:
        """Returns True if the job has to be read a second time for its verdict."""
        if one.ttl is None:
            return False
        if self._is_to_be_followed(one, around):
            return True
        if self.is_settled(one, around):
            return False
        return one.ttl in (NO_KEY, ENDLESS) or bool(around.nobody_is_here) or self._is_odd(one.rank, around)

    def is_newly_late(self, one: CandidateJob, around: VerdictContext) -> bool:
        """Returns True if the job is late and was not read yet, so that it can be listed."""
        return is_late(one.ttl, around) and not self.is_settled(one, around)

    def look_of(self, one: CandidateJob) -> JobRow:
        """Returns the known row of a job with the current TTL of its lock."""
        row = self.rows[decode_name(one.id)]
        return row if row.lock is None and one.ttl == NO_KEY else replace(row, lock=lock_from_ttl(one.ttl))

    def take(self, sight: ConsistentJobRead, now: int) -> None:
        row = sight.row
        self.rows[row.id] = row
        self.found_rows.add(row.id)
        if sight.is_steady:
            self.found_steady.add(row.id)
        if row.lock is not None and row.lock.ttl is not None:
            self.ends[row.id] = now + row.lock.ttl

    def doubt(self, id: str) -> None:
        """Forgets what is known of a job that an action has changed, or tried to: the next pass reads it again."""
        self.rows.pop(id, None)
        self.expiries.pop(id, None)

    def follow_locks(self, around: VerdictContext | None) -> None:
        """Updates the locks that are followed until they expire; `around` None: this pass did not read the queue."""
        if around is None or not around.follows_locks or self.found_error:
            self.expiries = {}
            return
        followed = {}
        for one in self.found:
            if (one.ttl == NO_KEY and self.expiries) or is_late(one.ttl, around):
                id = decode_name(one.id)
                glimpse = self._glimpse(id, one, around)
                expiry = glimpse and follow_lock(self.expiries.get(id), glimpse)
                if expiry:
                    followed[id] = expiry
        self.expiries = followed

    def unproven(self) -> list[str]:
        """Returns jobs whose locks were followed until they expired, and that are not marked as orphaned yet."""
        ended = (id for id, expiry in self.expiries.items() if expiry.has_ended)
        return [id for id in ended if id not in self.marks or not self.marks[id].kind.is_orphaned]

    def tells_more_soon(self, now: int) -> bool:
        """Returns True if a lock will expire before the next regular pass, or an expiry has to be read once more."""
        ends = (*self.ends.values(), *(one.ends_at for one in self.expiries.values() if not one.has_ended))
        return any(0 <= end - now <= SOON for end in ends) or bool(self.unproven())

    def has_expired(self, row: JobRow) -> bool:
        """Returns True if the job has no lock because it was not renewed."""
        expiry = self.expiries.get(row.id)
        return row.lock is None and expiry is not None and expiry.has_ended

    def keep(self, marks: dict[str, JobObservation]) -> None:
        self.marks = marks
        self.rows = {id: row for id, row in self.rows.items() if id in marks}
        self.ends = {id: end for id, end in self.ends.items() if id in marks}

    def is_settled(self, one: CandidateJob, around: VerdictContext) -> bool:
        """Returns True if the known row of a marked job is still valid: a proven orphan that still has no lock; a late
        job, or one whose worker is lost, whose lock was not renewed.
        """
        id = decode_name(one.id)
        mark = self.marks.get(id)
        if mark is None or id not in self.rows:
            return False
        if mark.kind.is_orphaned:
            return one.ttl == NO_KEY
        if mark.kind in (VerdictKind.WORKER_LOST, VerdictKind.LATE) and one.ttl is not None and one.ttl >= 0:
            return abs(around.now + one.ttl - self.ends.get(id, 0)) < _SAME_END
        return False

    def _is_to_be_followed(self, one: CandidateJob, around: VerdictContext) -> bool:
        """Returns True for a lock of Bull that has just missed its renewal."""
        if one.ttl is None or not around.follows_locks or not is_late(one.ttl, around):
            return False
        known = self.expiries.get(decode_name(one.id))
        return known is None or not known.is_end(around.now, one.ttl)

    def _glimpse(self, id: str, one: CandidateJob, around: VerdictContext) -> LockObservation | None:
        """Returns the newest observation of a job's lock, which may have ended since the list was read; None if the job
        moved, or has a lock without expiry, which no library makes.
        """
        if id in self.found_moved or (id in self.found_rows and id not in self.found_steady):
            return None
        row = self.rows[id] if id in self.found_rows else None
        lock = row.lock if row else lock_from_ttl(one.ttl)
        ttl = lock.ttl if lock else None
        if lock and ttl is None:
            return None
        return LockObservation(around.now, ttl, one.rank, is_late(ttl, around), job_fingerprint(row) if row else None)

    def _odd_places(self, around: VerdictContext) -> Iterator[int]:
        """Yields indexes of jobs whose facts ask for a second read: no data, unknown worker, failed parent, overdue."""
        jobs = self.jobs
        yield from jobs.gone()
        if around.workers and not around.unnamed:
            yield from jobs.of_workers({name for name in jobs.by_worker() if name and name not in around.names})
        yield from jobs.of_parents({key for key, parent in self.parents.items() if parent in _LEFT_ALONE})
        if around.overdue_after is not None:
            yield from jobs.started_before(around.now - around.overdue_after)

    def _is_odd(self, at: int, around: VerdictContext) -> bool:
        jobs = self.jobs
        worker, start = jobs.workers[at], jobs.start_of(at)
        if not jobs.there[at]:
            return True
        if worker and not around.unnamed and worker not in around.names and around.workers:
            return True
        if jobs.parents[at] and self.parents.get(jobs.parents[at]) in _LEFT_ALONE:
            return True
        limit = around.overdue_after
        return limit is not None and start is not None and around.now - start > limit


_LEFT_ALONE = (ParentState.FAILED, ParentState.GONE)


def lock_from_ttl(ttl: int | None) -> JobLock | None:
    if ttl is None or ttl == NO_KEY:
        return None
    return JobLock("", None if ttl == ENDLESS else ttl)
