"""Checks everything that has been stuck for long, every quarter of an hour.

1. Active jobs without a lock, or with one that never ends: put back to wait where the policy lets it. 2. Ids without a
job: removed. 3. Queues whose idle workers nothing wakes: reported. 4. Incidents that were left open: closed. 5. Calls
of hooks that failed: made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from django.db import Error

from recovery.connections.registry import Registry
from recovery.domain.acting import Act, Options, Seen
from recovery.domain.ages import age
from recovery.domain.counts import Library, Snapshot
from recovery.domain.mandate import Mandate
from recovery.domain.n8n import is_n8n
from recovery.domain.policy import Duty, Scanner
from recovery.domain.refs import QueueRef, shown
from recovery.domain.scans import Find, Report, Scan
from recovery.domain.verdicts import Kind
from recovery.errors import UnstallError
from recovery.reads.lists import Queue
from recovery.reads.policies import Following
from recovery.reads.rescuers import refusal
from recovery.scanners.acting import proof
from recovery.scanners.acting.deeds import Deeds, Holding, Wish
from recovery.scanners.acting.lost import MALFORMED, N8N, QUARANTINED
from recovery.scanners.acting.reach import readable
from recovery.scanners.deep import markers
from recovery.scanners.deep.left_open import LeftOpen
from recovery.scanners.deep.stale_jobs import Stale, StaleJobs
from recovery.scanners.watching.orphan_watch import NO_SNAPSHOT

UNPROVEN = "It has no lock, but that is not yet proof: the next check confirms it."
GHOST_HELD = "A worker has its lock, so it may be running: a person decides."
ENDLESS = "Its lock never expires, and the policy does not allow releasing it."
UNNAMED = "Its lock never expires, and it is not known that its worker is gone: a person decides."


@dataclass(frozen=True, slots=True)
class _Deed:
    act: Act
    options: Options


_REQUEUE = _Deed(Act.REQUEUE, Options())
_RELEASE = _Deed(Act.RELEASE, Options(requeue=True))
_REMOVE = _Deed(Act.REMOVE, Options())


class StaleCheck:
    """Stale check; for one thread at a time. `again` repeats the calls of hooks that are due."""

    def __init__(
        self,
        registry: Registry,
        newest: Callable[[], Snapshot | None],
        mandate: Mandate | None,
        holding: Holding,
        again: Callable[[int], object] = int,
    ) -> None:
        self._registry = registry
        self._newest = newest
        self._mandate = mandate
        self._holding = holding
        self._again = again
        self._jobs = StaleJobs(registry)
        self._incidents = LeftOpen(registry)

    def run(self, now: int, *, observes: bool = False, queue: QueueRef | None = None) -> Report:
        snapshot = self._newest()
        if snapshot is None:
            return Report(faults=(NO_SNAPSHOT,))
        book = Following(self._registry.config)
        deeds = Deeds(self._mandate, Scan.STALE_CHECK, book, self._holding, observes=observes)
        look = _Look(self._registry, snapshot, self._jobs, book, deeds, now)
        for sample in readable(snapshot, queue, look.faults):
            look.at(Queue(sample.ref, sample.flavour, sample))
        if not observes and not deeds.is_stopped:
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

    registry: Registry
    snapshot: Snapshot
    jobs: StaleJobs
    book: Following
    deeds: Deeds
    now: int
    looked: int = 0
    reached: int = 0
    finds: list[Find] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def at(self, queue: Queue) -> None:
        if queue.flavour.library is Library.TABLE:  # the startup sweep checks these
            return
        try:
            self._queue(queue)
            self.reached += 1
        except (UnstallError, Error) as error:
            self.fail(f"{shown(str(queue.ref))}: {_words(error)}")

    def tidy(self, incidents: LeftOpen, queue: QueueRef | None) -> None:
        after = self.registry.config.thresholds.stale_after
        try:
            self.finds += incidents.close(self.snapshot, queue, after, self.now)
        except (UnstallError, Error) as error:
            self.fail(f"Open incidents cannot be closed: {_words(error)}")

    def fail(self, why: str) -> None:
        self.faults.append(why)

    def report(self) -> Report:
        faults = dict.fromkeys((*self.faults, *self.deeds.faults))
        return Report(
            self.looked,
            tuple(self.finds),
            tuple(self.deeds.holds),
            tuple(faults),
            reached=self.reached,
            is_refused=self.deeds.is_refused,
        )

    def _queue(self, queue: Queue) -> None:
        ref, config = queue.ref, self.registry.config
        resolved = self.book.of(ref)
        duty = resolved.policy.stale_check
        stale_after = config.thresholds_of(ref.deployment, ref.base).stale_after
        if queue.sample is None or queue.sample.counts.active != 0:
            found = self.jobs.of(queue, self.snapshot, min(duty.after, stale_after), self.now)
            self.looked += found.looked
            self.faults += [f"{shown(str(ref))}: {fault}" for fault in found.faults]
            self._act(queue, found.jobs, duty, resolved.sentence(Scanner.STALE_CHECK, self.now))
            if found.more:
                self._say(queue, f"{found.more:,} more jobs without a lock", "The next run checks them.")
        if said := markers.lost(queue, self.snapshot, stale_after, self.now):
            self._say(queue, said, markers.NOT_TOUCHED)

    def _act(self, queue: Queue, jobs: tuple[Stale, ...], duty: Duty, sentence: str) -> None:
        """Acts on stale jobs in the order of their list, so that a script finds each at once."""
        wanted: dict[_Deed, list[Wish]] = {}
        for one in jobs:
            why = next(_why_not(queue, one, duty), "") or refusal(queue, _deed(one).act)
            if why:
                self.finds.append(Find(one.row.ref, self._what(one), why))
            elif one.since > self.now - duty.after:
                left = age(one.since + duty.after - self.now)
                self.finds.append(Find(one.row.ref, self._what(one), f"Its policy waits {left} more."))
            else:
                wanted.setdefault(_deed(one), []).append(Wish(Seen.of(one.row), self._what(one), sentence))
        for deed, wishes in wanted.items():
            self.finds += self._done(queue.ref, deed, wishes)

    def _done(self, ref: QueueRef, deed: _Deed, wishes: list[Wish]) -> Sequence[Find]:
        def do() -> tuple[Find, ...]:
            return self.deeds.do(deed.act, ref, wishes, deed.options)

        ids = [wish.seen.id for wish in wishes]
        return proof.releasing(ref, ids, self.now, do) if deed is _RELEASE else do()

    def _what(self, one: Stale) -> str:
        return f"{one.verdict.kind.value} for {age(self.now - one.since)}: {' '.join(one.verdict.evidence)}"

    def _say(self, queue: Queue, what: str, why: str) -> None:
        self.finds.append(Find(queue.ref.job(""), what, why))


def _words(error: Exception) -> str:
    """Describes an error; of a database error only its class, as its message may name hosts and files."""
    return str(error) if isinstance(error, UnstallError) else f"the database answered {type(error).__name__}"


def _why_not(queue: Queue, one: Stale, duty: Duty) -> Iterator[str]:
    """Yields reasons that leave a job to a person, or to the next check."""
    kind, is_locked = one.verdict.of_lock, one.row.lock is not None
    if kind is Kind.MISSING_DATA:
        if is_locked:
            yield GHOST_HELD
        return
    if one.verdict.is_quarantined:
        yield QUARANTINED
    if one.verdict.kind is Kind.MALFORMED:
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


def _deed(one: Stale) -> _Deed:
    kind = one.verdict.of_lock
    if kind is Kind.MISSING_DATA:
        return _REMOVE
    return _REQUEUE if kind.is_orphaned else _RELEASE
