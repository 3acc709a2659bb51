"""Checks everything that has been stuck for long, every quarter of an hour.

1. Active jobs without a lock, or with one that never ends: put back to wait where the policy lets it. 2. Ids without a
job: removed. 3. Queues whose idle workers nothing wakes: reported. 4. Incidents that were left open: closed. 5. Calls
of hooks that failed: made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from django.db import Error

from recovery.backends.bullmq.versions import MARKER_KEY
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.keys import Keys
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.policies.types import PolicyScanner, ScannerPolicy
from recovery.domain.queues.types import QueueLibrary, QueueSample, Snapshot
from recovery.domain.scanners.types import ScannerFinding, ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import age
from recovery.errors import UnstallError
from recovery.reads.policies.queries import LivePolicies
from recovery.reads.queues.job_lists import Queue
from recovery.reads.scanners.forecast import action_refusal
from recovery.scanners.orphan_watch import incident_guard
from recovery.scanners.orphan_watch.rescue_rules import MALFORMED, N8N, QUARANTINED
from recovery.scanners.orphan_watch.scanner import NO_SNAPSHOT
from recovery.scanners.runtime.readable_queues import readable_samples
from recovery.scanners.runtime.scanner_actions import BlockingReasons, ScannerActionRequest, ScannerActions
from recovery.scanners.stale_check.stale_jobs import StaleJob, StaleJobs
from recovery.scanners.stale_check.unclosed_incidents import UnclosedIncidents
from recovery.stores.registry import ConnectionRegistry

# -- lost markers
# Reports queues of BullMQ ≥ 5 whose idle workers wait for a missing marker, while jobs wait for them. A worker also
# polls now and then, so this heals, unless its blocking read hangs: then only a restart helps. It is only reported: a
# marker set from outside wakes no worker whose read hangs.


NOT_TOUCHED = "Report only: workers also poll without the marker. A worker that does not is hung and needs a restart."
_BLOCKED = "bzpopmin"  # how a worker waits for the marker
_PLACES = (b"wait", b"prioritized")


def missing_marker(queue: Queue, snapshot: Snapshot, after: int, now: int) -> str:
    """Describes a missing marker in one sentence; "" if none is missing, or if that is unknown. Raises StoreError."""
    sample = queue.sample
    if sample is None or not _may_be(sample, after, now):
        return ""
    idle = sum(worker.queue == queue.ref and worker.command == _BLOCKED for worker in snapshot.workers)
    if not idle:
        return ""
    keys = Keys(queue.ref.base)
    active, waiting, prioritized, marker, limited = queue.wire.call(
        [
            (b"LLEN", keys.active),
            (b"LLEN", keys.named(_PLACES[0])),
            (b"ZCARD", keys.named(_PLACES[1])),
            (b"ZSCORE", keys.named(b"marker"), b"0"),
            (b"EXISTS", keys.limiter),
        ]
    )
    jobs = [decode.count(waiting), decode.count(prioritized)]
    if None in (*jobs, decode.count(active)) or isinstance(marker, Exception):
        return ""
    count = sum(number or 0 for number in jobs)
    if not count or marker is not None or limited or _is_full(sample, decode.count(active) or 0):
        return ""
    oldest = age(now - (sample.oldest_waiting_at or now))
    workers = "1 worker is" if idle == 1 else f"{idle:,} workers are"
    return f"{count:,} jobs wait, the oldest for {oldest}; {workers} idle, and the wake-up marker is missing."


def _may_be(sample: QueueSample, after: int, now: int) -> bool:
    """Tells by the snapshot whether a marker may be missing."""
    flavour = sample.flavour
    is_marked = flavour.library is QueueLibrary.BULLMQ and (flavour.major or 0) >= MARKER_KEY and not flavour.mixed
    oldest = sample.oldest_waiting_at
    return is_marked and sample.is_paused is False and oldest is not None and oldest <= now - after


def _is_full(sample: QueueSample, active: int) -> bool:
    return sample.concurrency is not None and active >= sample.concurrency


# -- scanner


UNPROVEN = "It has no lock, but that is not yet proof: the next check confirms it."
GHOST_HELD = "A worker has its lock, so it may be running: a person decides."
ENDLESS = "Its lock never expires, and the policy does not allow releasing it."
UNNAMED = "Its lock never expires, and it is not known that its worker is gone: a person decides."


@dataclass(frozen=True, slots=True)
class _Deed:
    act: Action
    options: ActionOptions


_REQUEUE = _Deed(Action.REQUEUE, ActionOptions())
_RELEASE = _Deed(Action.RELEASE, ActionOptions(requeue=True))
_REMOVE = _Deed(Action.REMOVE, ActionOptions())


class StaleCheck:
    """Stale check; for one thread at a time. `again` repeats the calls of hooks that are due."""

    def __init__(
        self,
        registry: ConnectionRegistry,
        newest: Callable[[], Snapshot | None],
        leader_token: LeaderToken | None,
        holding: BlockingReasons,
        again: Callable[[int], object] = int,
    ) -> None:
        self._registry = registry
        self._newest = newest
        self._leader_token = leader_token
        self._holding = holding
        self._again = again
        self._jobs = StaleJobs(registry)
        self._incidents = UnclosedIncidents(registry)

    def run(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        snapshot = self._newest()
        if snapshot is None:
            return ScannerReport(faults=(NO_SNAPSHOT,))
        book = LivePolicies(self._registry.config)
        scanner_actions = ScannerActions(
            self._leader_token, ScannerKind.STALE_CHECK, book, self._holding, dry_run=dry_run
        )
        look = _Look(self._registry, snapshot, self._jobs, book, scanner_actions, now)
        for sample in readable_samples(snapshot, queue, look.faults):
            look.at(Queue(sample.ref, sample.flavour, sample))
        if not dry_run and not scanner_actions.is_stopped:
            look.tidy(self._incidents, queue)
            self._call_again(look, now)
        if queue is None:
            self._jobs.forget([sample.ref for sample in snapshot.queues])
        return look.report()

    def _call_again(self, look: _Look, now: int) -> None:
        try:
            self._again(now)
        except (UnstallError, Error) as error:
            look.fail(f"Hooks that failed cannot be called again: {_words(error)}")


@dataclass(slots=True)
class _Look:
    """State of one run of the stale check."""

    registry: ConnectionRegistry
    snapshot: Snapshot
    jobs: StaleJobs
    book: LivePolicies
    scanner_actions: ScannerActions
    now: int
    looked: int = 0
    reached: int = 0
    finds: list[ScannerFinding] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def at(self, queue: Queue) -> None:
        if queue.flavour.library is QueueLibrary.TABLE:  # the startup sweep checks these
            return
        try:
            self._queue(queue)
            self.reached += 1
        except (UnstallError, Error) as error:
            self.fail(f"{printable(str(queue.ref))}: {_words(error)}")

    def tidy(self, incidents: UnclosedIncidents, queue: QueueRef | None) -> None:
        after = self.registry.config.thresholds.stale_after
        try:
            self.finds += incidents.close(self.snapshot, queue, after, self.now)
        except (UnstallError, Error) as error:
            self.fail(f"Open incidents cannot be closed: {_words(error)}")

    def fail(self, why: str) -> None:
        self.faults.append(why)

    def report(self) -> ScannerReport:
        faults = dict.fromkeys((*self.faults, *self.scanner_actions.faults))
        return ScannerReport(
            self.looked,
            tuple(self.finds),
            tuple(self.scanner_actions.holds),
            tuple(faults),
            reached=self.reached,
            is_refused=self.scanner_actions.is_refused,
        )

    def _queue(self, queue: Queue) -> None:
        ref, config = queue.ref, self.registry.config
        resolved = self.book.of(ref)
        duty = resolved.policy.stale_check
        stale_after = config.thresholds_of(ref.deployment, ref.base).stale_after
        if queue.sample is None or queue.sample.counts.active != 0:
            found = self.jobs.of(queue, self.snapshot, min(duty.after, stale_after), self.now)
            self.looked += found.looked
            self.faults += [f"{printable(str(ref))}: {fault}" for fault in found.faults]
            self._act(queue, found.jobs, duty, resolved.sentence(PolicyScanner.STALE_CHECK, self.now))
            if found.more:
                self._say(queue, f"{found.more:,} more jobs without a lock", "The next run checks them.")
        if said := missing_marker(queue, self.snapshot, stale_after, self.now):
            self._say(queue, said, NOT_TOUCHED)

    def _act(self, queue: Queue, jobs: tuple[StaleJob, ...], duty: ScannerPolicy, sentence: str) -> None:
        """Acts on stale jobs in the order of their list, so that a script finds each at once."""
        wanted: dict[_Deed, list[ScannerActionRequest]] = {}
        for one in jobs:
            why = next(_why_not(queue, one, duty), "") or action_refusal(queue, _deed(one).act)
            if why:
                self.finds.append(ScannerFinding(one.row.ref, self._what(one), why))
            elif one.since > self.now - duty.after:
                left = age(one.since + duty.after - self.now)
                self.finds.append(ScannerFinding(one.row.ref, self._what(one), f"Its policy waits {left} more."))
            else:
                wanted.setdefault(_deed(one), []).append(
                    ScannerActionRequest(ExpectedJob.of(one.row), self._what(one), sentence)
                )
        for deed, requests in wanted.items():
            self.finds += self._done(queue.ref, deed, requests)

    def _done(self, ref: QueueRef, deed: _Deed, requests: list[ScannerActionRequest]) -> Sequence[ScannerFinding]:
        def do() -> tuple[ScannerFinding, ...]:
            return self.scanner_actions.do(deed.act, ref, requests, deed.options)

        ids = [request.seen.id for request in requests]
        return incident_guard.release_as_proven(ref, ids, self.now, do) if deed is _RELEASE else do()

    def _what(self, one: StaleJob) -> str:
        return f"{one.verdict.kind.value} for {age(self.now - one.since)}: {' '.join(one.verdict.evidence)}"

    def _say(self, queue: Queue, what: str, why: str) -> None:
        self.finds.append(ScannerFinding(queue.ref.job(""), what, why))


def _words(error: Exception) -> str:
    """Describes an error; of a database error only its class, as its message may name hosts and files."""
    return str(error) if isinstance(error, UnstallError) else f"the database answered {type(error).__name__}"


def _why_not(queue: Queue, one: StaleJob, duty: ScannerPolicy) -> Iterator[str]:
    """Yields reasons that leave a job to a person, or to the next check."""
    kind, is_locked = one.verdict.of_lock, one.row.lock is not None
    if kind is VerdictKind.MISSING_DATA:
        if is_locked:
            yield GHOST_HELD
        return
    if one.verdict.is_quarantined:
        yield QUARANTINED
    if one.verdict.kind is VerdictKind.MALFORMED:
        yield MALFORMED
    if is_n8n(queue.ref, queue.flavour):
        yield N8N
    if kind.is_orphaned:
        return
    if not is_locked:
        yield UNPROVEN
    if not one.is_deserted:
        yield UNNAMED
    if not duty.release:
        yield ENDLESS


def _deed(one: StaleJob) -> _Deed:
    kind = one.verdict.of_lock
    if kind is VerdictKind.MISSING_DATA:
        return _REMOVE
    return _REQUEUE if kind.is_orphaned else _RELEASE
