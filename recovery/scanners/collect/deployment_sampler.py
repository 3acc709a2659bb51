"""Reads one deployment once per tick: all counts in one batch, then the few things that depend on them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from recovery.backends import client_list
from recovery.backends.base import Command
from recovery.backends.registry import reader
from recovery.config import Deployment
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import DeploymentSample, JobCounts, QueueSample, Worker
from recovery.errors import StoreError, TimedOut
from recovery.scanners.collect import rates
from recovery.scanners.collect.oldest_job_ages import OldestJob, OldestJobAges
from recovery.scanners.collect.queue_read_plan import QueueReadPlan
from recovery.scanners.collect.rates import HistoryReader, QueueRates
from recovery.scanners.collect.server_info import ServerInfo, parse_server_info
from recovery.scanners.discovery.known_queues import KnownQueues, QueueListing
from recovery.stores.redis.client import EncodedBatch, StoreClient

SERVER_INFO_MS = 30_000  # INFO changes rarely
SLOW_QUEUES = 2  # left out at one tick: where more of them do not answer in time, it is the server
HINT_MS = 6_000  # a new queue with workers is found within this time


@dataclass(frozen=True, slots=True)
class CollectedDeployment:
    """Sample of one deployment with its queues and workers. `is_asked` off: nothing was due, so these are old numbers.

    `is_late`: it did not answer in time, which also a healthy one does now and then.
    """

    deployment: DeploymentSample
    queues: tuple[QueueSample, ...] = ()
    workers: tuple[Worker, ...] = ()
    is_asked: bool = True
    is_late: bool = False

    def slow(self, why: str) -> CollectedDeployment:
        """Returns these numbers once more with a warning, in place of a read that failed."""
        warning = f"It answers slowly ({why}). These are its last known numbers."
        deployment = replace(self.deployment, warnings=(*self.deployment.warnings, warning))
        return replace(self, deployment=deployment, is_late=True)


class _Plan:
    """Commands of all queues, kept until the list of queues changes."""

    def __init__(self, listing: QueueListing) -> None:
        self.version = listing.version
        self.rows = [QueueReadPlan(known, reader(known.flavour), at) for at, known in enumerate(listing.queues)]
        self._kept: tuple[Sequence[EncodedBatch], EncodedBatch] | None = None

    def answered(
        self, wire: StoreClient, rows: Sequence[QueueReadPlan], batches: Sequence[EncodedBatch]
    ) -> Iterator[tuple[QueueReadPlan, Sequence[Any]]]:
        """Yields each queue with its replies, as soon as they are all there."""
        replies: list[Any] = []
        waiting = iter(zip(rows, accumulate(map(len, batches), initial=0), map(len, batches), strict=False))
        row = next(waiting, None)
        for part in wire.parts(self._request(batches)) if batches else ():
            replies += part
            while row and row[1] + row[2] <= len(replies):
                yield row[0], replies[row[1] : row[1] + row[2]]
                row = next(waiting, None)

    def _request(self, batches: Sequence[EncodedBatch]) -> EncodedBatch:
        """Returns the joined request, the same one again while nothing else is asked."""
        if self._kept is None or self._kept[0] != batches:
            self._kept = batches, EncodedBatch.joined(batches)
        return self._kept[1]

    @property
    def refs(self) -> list[QueueRef]:
        return [row.known.ref for row in self.rows]


class DeploymentSampler:
    """Samples one deployment, and remembers between ticks what need not be read again. For one thread at a time."""

    def __init__(
        self, deployment: Deployment, wire: Callable[[], StoreClient], roster: KnownQueues, recorded: HistoryReader
    ) -> None:
        self.name = deployment.name
        self._deployment = deployment
        self._wire = wire
        self._roster = roster
        self._ages = OldestJobAges()
        self._pace = QueueRates(recorded)
        self._plan = _Plan(QueueListing(-1))
        self._tick = 0
        self._vitals = ServerInfo()
        self._vitals_at: int | None = None
        self._hinted_at: int | None = None
        self._commands = 0
        self._is_one_by_one = False  # the last read timed out, which one queue alone may have caused
        self._slow: set[QueueRef] = set()  # timed out at the last read one by one, while the server answered
        self._last = CollectedDeployment(DeploymentSample(deployment.name, deployment.target, 0))

    def look(self, now: int) -> CollectedDeployment:
        """Reads the deployment; if it does not answer, returns the last numbers with the reason."""
        started = time.perf_counter()
        self._commands = 0
        try:
            found = self._look(now)
        except StoreError as error:
            self._vitals_at = None  # it may be another server when it comes back
            self._is_one_by_one = isinstance(error, TimedOut)
            return replace(self.missed(error.reason, error.advice), is_late=isinstance(error, TimedOut))
        self._is_one_by_one = False
        took = (time.perf_counter() - started) * 1000
        done = replace(found.deployment, took_ms=round(took, 2), commands=self._commands)
        self._last = replace(found, deployment=done)
        return self._last

    def missed(self, error: str, advice: str) -> CollectedDeployment:
        """Returns the last good numbers, marked as old. Queues that were never read are listed as unknown."""
        marked = replace(self._last.deployment, error=error, advice=advice)
        read = {sample.ref for sample in self._last.queues}
        unread = tuple(
            QueueSample(known.ref, known.flavour, error=error)
            for known in self._roster.listing(self.name).queues
            if known.ref not in read
        )
        return replace(self._last, deployment=marked, queues=self._last.queues + unread)

    def _look(self, now: int) -> CollectedDeployment:
        wire = self._wire()
        plan = self._planned()
        heads = self._heads(plan, wire, now)
        hands = self._workers(wire, plan, now)
        self._look_at_server(wire, now)
        self._ask_ages(wire, heads, now)
        self._ask_rates(wire, plan, now)
        return CollectedDeployment(
            DeploymentSample(
                name=self.name,
                target=self._deployment.target,
                taken_at=now,
                server=self._vitals.server,
                run_id=self._vitals.run_id,
                workers_known=hands is not None,
                warnings=(*self._vitals.warnings, *self._gaps()),
            ),
            tuple(self._complete(plan, heads, hands)),
            hands or (),
        )

    def _planned(self) -> _Plan:
        listing = self._roster.listing(self.name)
        if listing.version != self._plan.version:
            before = {row.known.ref: row.sample for row in self._plan.rows}
            self._plan = _Plan(listing)
            for row in self._plan.rows:
                row.sample = before.get(row.known.ref)
            self._ages.keep(self._plan.refs)
            self._pace.keep(self._plan.refs)
        return self._plan

    def _heads(self, plan: _Plan, wire: StoreClient, now: int) -> dict[QueueRef, tuple[OldestJob, OldestJob]]:
        """Reads the counts of all queues; parses each while the next replies arrive. Returns their oldest jobs."""
        self._tick += 1
        asked = [row for row in plan.rows if row.is_due(now, self._tick)]
        again = self._ask(plan, wire, asked, [row.request for row in asked], now)
        self._ask(plan, wire, again, [row.whole for row in again], now)
        heads = {}
        for row in plan.rows:
            assert row.sample is not None and row.heads is not None  # noqa: S101, PT018 -- one without is due
            heads[row.known.ref] = row.heads
        return heads

    def _ask(
        self, plan: _Plan, wire: StoreClient, rows: Sequence[QueueReadPlan], batches: Sequence[EncodedBatch], now: int
    ) -> list[QueueReadPlan]:
        """Sends the commands of these queues; returns those that have to be read in full."""
        again = []
        self._commands += sum(map(len, batches))
        answered = (
            self._one_by_one(wire, rows, batches, now) if self._is_one_by_one else plan.answered(wire, rows, batches)
        )
        for row, replies in answered:
            known, by = row.known, row.reader
            if skipped := row.skip(replies, now):
                _leave_out(row, skipped)
                continue
            answers = row.answers(replies)
            if answers is None:
                again.append(row)
                continue
            try:
                sample, (waiting, active) = by.sample(known.ref, known.flavour, answers, now)
            except (ValueError, TypeError, LookupError) as error:
                # One queue with nonsense in it must not cost the others their numbers.
                sample, waiting, active = QueueSample(known.ref, known.flavour, error=f"unreadable: {error}"), "", ""
            row.learn(answers)
            read_at = None if sample.error and sample.counts == JobCounts() else now
            row.sample = _or_before(sample._replace(read_at=read_at), row.sample)
            row.heads = OldestJob(known.ref, False, waiting, by), OldestJob(known.ref, True, active, by)
        return again

    def _one_by_one(
        self, wire: StoreClient, rows: Sequence[QueueReadPlan], batches: Sequence[EncodedBatch], now: int
    ) -> Iterator[tuple[QueueReadPlan, Sequence[Any]]]:
        """Yields each queue with its replies, in a round trip of its own. One that times out at two ticks is left out
        for a while, if the server answers afterwards: it may hold a value that takes long to be copied. At one tick it
        may be a server that came back in between.
        """
        before, self._slow = self._slow, set()
        late: dict[QueueRef, tuple[QueueReadPlan, TimedOut]] = {}
        for row, batch in zip(rows, batches, strict=True):
            try:
                yield row, wire.send(batch)
            except TimedOut as caught:
                late[row.known.ref] = row, caught
                if len(late) > SLOW_QUEUES:
                    raise
                wire.call([(b"PING",)])
        for ref in before & late.keys():
            row, error = late.pop(ref)
            _leave_out(row, row.skip_slow(error.reason, now))
        self._slow = set(late)
        if late:
            raise next(error for _, error in late.values())

    def _workers(self, wire: StoreClient, plan: _Plan, now: int) -> tuple[Worker, ...] | None:
        """Returns the workers connected to all nodes; None when one of them refuses CLIENT LIST."""
        listings = self._each_node(wire, (b"CLIENT", b"LIST"))
        if not all(isinstance(listing, bytes) for listing in listings.values()):
            return None
        self._hint(listings.values(), now)
        database, refs = self._deployment.database, plan.refs
        return tuple(worker for one in listings.values() for worker in client_list.parse(one, refs, db=database))

    def _hint(self, listings: Iterable[bytes], now: int) -> None:
        """Tells discovery the queues of connected workers, every few seconds: it costs as much as counting them."""
        if self._hinted_at is None or not 0 <= now - self._hinted_at < HINT_MS:
            database = self._deployment.database
            self._roster.hint(self.name, set().union(*(client_list.bases(one, db=database) for one in listings)))
            self._hinted_at = now

    def _look_at_server(self, wire: StoreClient, now: int) -> None:
        if self._vitals_at is None or not 0 <= now - self._vitals_at < SERVER_INFO_MS:
            self._vitals = parse_server_info(self._each_node(wire, (b"INFO",)))
            self._vitals_at = now

    def _ask_ages(self, wire: StoreClient, heads: Mapping[QueueRef, tuple[OldestJob, OldestJob]], now: int) -> None:
        unknown = self._ages.unknown((head for pair in heads.values() for head in pair if head.id), now)
        if unknown:
            questions = [head.question for head in unknown]
            replies = self._count(len(questions), wire.call(questions))
            self._ages.learn(unknown, replies, now)
            self._skip_oversized(unknown, replies, now)

    def _skip_oversized(self, heads: Sequence[OldestJob], replies: Sequence[Any], now: int) -> None:
        """Skips queues for a while whose oldest job has fields that are too long to be read."""
        rows = {row.known.ref: row for row in self._plan.rows}
        for head, reply in zip(heads, replies, strict=True):
            row = rows[head.ref]
            if row.sample is not None and (skipped := row.skip([reply], now)):
                row.sample = row.sample._replace(error=skipped, is_old=True)

    def _ask_rates(self, wire: StoreClient, plan: _Plan, now: int) -> None:
        due = self._pace.due(plan.refs, now)
        if due:
            questions = rates.rate_commands(due)
            self._pace.learn(due, self._count(len(questions), wire.call(questions)), now)

    def _complete(
        self,
        plan: _Plan,
        heads: Mapping[QueueRef, tuple[OldestJob, OldestJob]],
        hands: tuple[Worker, ...] | None,
    ) -> Iterable[QueueSample]:
        groups: dict[QueueRef, list[Worker]] = {}
        for worker in hands or ():
            groups.setdefault(worker.queue, []).append(worker)
        for row in plan.rows:
            assert row.sample is not None  # noqa: S101 -- each has one by now
            ref = row.known.ref
            waiting, active = heads[ref]
            row.sample = row.sample._replace(
                oldest_waiting_at=self._ages.since(ref, False, waiting.id),
                oldest_active_at=self._ages.since(ref, True, active.id),
                workers=None if hands is None else client_list.count(groups.get(ref, ()), ref),
                rates=self._pace.of(ref),
            )
            yield row.sample

    def _gaps(self) -> Iterator[str]:
        """Yields warnings about queues that are missing from the list."""
        listing = self._roster.listing(self.name)
        if listing.left_out:
            yield f"{listing.left_out:,} more queues were found; they are not shown."
        if listing.trouble:
            yield (
                f"Queue discovery failed ({listing.trouble}): only configured queues and queues with workers are shown."
            )

    def _each_node(self, wire: StoreClient, command: Command) -> dict[str, Any]:
        answers = wire.each_node(command)
        self._commands += len(answers)
        return answers

    def _count(self, commands: int, replies: list[Any]) -> list[Any]:
        self._commands += commands
        return replies


def _leave_out(row: QueueReadPlan, why: str) -> None:
    """Leaves a queue out of this tick: its last numbers stay, marked with the reason."""
    known, by = row.known, row.reader
    row.sample = _or_before(QueueSample(known.ref, known.flavour, error=why), row.sample)
    row.heads = OldestJob(known.ref, False, "", by), OldestJob(known.ref, True, "", by)


def _or_before(sample: QueueSample, before: QueueSample | None) -> QueueSample:
    """Returns the last good numbers, marked, for a queue of which nothing can be read any more."""
    if not sample.error or before is None or sample.counts != JobCounts() or (before.error and not before.is_old):
        return sample
    return before._replace(error=sample.error, is_old=True)
