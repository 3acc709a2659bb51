"""Reads the job tables of one database for the snapshot: at each tick, or less often if counting takes long.

A table is counted row by row, which loads a database with millions of them. So each table rests for 20 times as long as
its last count took; meanwhile its last numbers count.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from recovery.backends.job_tables.counts import TableSample
from recovery.backends.job_tables.reader import TableReader
from recovery.config import Database, JobTable
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import DeploymentSample, JobCounts, LibraryVersion, QueueSample, Worker
from recovery.domain.time_units import SECOND
from recovery.errors import AccessDenied, StoreError, TimedOut, Unreachable
from recovery.reads.stuck import table_verdicts
from recovery.scanners.collect.deployment_sampler import CollectedDeployment
from recovery.scanners.collect.rates import HistoryReader, rates_from_history
from recovery.stores.redis.client import StoreClient
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

REST = 20  # times as long as a count took: then it costs a twentieth of one connection
LONGEST = 60_000  # ms without a count, however long one takes
UNHEARD = -1  # seconds: a table that keeps no heartbeats


@dataclass(frozen=True, slots=True)
class _Seen:
    """Result of the last count of a table."""

    sample: QueueSample
    workers: tuple[Worker, ...] = ()
    due_at: int = 0
    fault: StoreError | None = None


class TableSampler:
    """Samples the tables of one database, and remembers between ticks what need not be read again. For one thread."""

    def __init__(
        self, database: Database, listed: Sequence[JobTable], wire: Callable[[], StoreClient], recorded: HistoryReader
    ) -> None:
        self.name = database.name
        self._database = database
        self._tables = {QueueRef(database.name, table.name): table for table in listed}
        self._wire = wire
        self._recorded = recorded
        self._reader = TableReader()
        self._seen: dict[QueueRef, _Seen] = {}
        self._last = CollectedDeployment(DeploymentSample(database.name, database.target, 0))

    def look(self, now: int) -> CollectedDeployment:
        """Reads the tables that are due; if the database does not answer, returns the last numbers with the reason."""
        started = time.perf_counter()
        wire = as_sql_client(self._wire())
        is_asked = False
        for ref, table in self._tables.items():
            if self._is_due(ref, now):
                is_asked = True
                self._seen[ref] = self._look(wire, ref, table, now)
                # A database that was too slow is spared for a moment, so the other tables are not read now.
                if isinstance(self._seen[ref].fault, (Unreachable, TimedOut)):
                    break
        if fault := self._away():
            return replace(self.missed(fault.reason, fault.advice), is_late=isinstance(fault, TimedOut))
        took = (time.perf_counter() - started) * 1000
        recorded = self._recorded(list(self._tables), now) if self._tables else {}
        self._last = CollectedDeployment(
            DeploymentSample(
                name=self.name,
                target=self._database.target,
                taken_at=now,
                took_ms=round(took, 2),
                server=table_verdicts.ENGINES[self._database.engine],
            ),
            tuple(
                seen.sample._replace(rates=rates_from_history(recorded.get(ref, {}), now))
                for ref, seen in self._in_order()
            ),
            tuple(worker for _, seen in self._in_order() for worker in seen.workers),
            is_asked,
        )
        return self._last

    def missed(self, error: str, advice: str) -> CollectedDeployment:
        """Returns the last good numbers, marked as old. Tables that were never read are listed as unknown."""
        marked = replace(self._last.deployment, error=error, advice=advice)
        read = {sample.ref for sample in self._last.queues}
        wire = as_sql_client(self._wire())
        unread = tuple(
            QueueSample(ref, table_verdicts.flavour(wire, table), error=error)
            for ref, table in self._tables.items()
            if ref not in read
        )
        return replace(self._last, deployment=marked, queues=self._last.queues + unread)

    def _in_order(self) -> list[tuple[QueueRef, _Seen]]:
        return [(ref, self._seen[ref]) for ref in self._tables if ref in self._seen]

    def _is_due(self, ref: QueueRef, now: int) -> bool:
        seen = self._seen.get(ref)
        return seen is None or now >= seen.due_at or seen.due_at - now > LONGEST  # a clock that was set back

    def _away(self) -> StoreError | None:
        """Returns why the whole database counts as silent: it is unreachable, or all of its tables fail; else None."""
        faults = [seen.fault for seen in self._seen.values()]
        away = next((fault for fault in faults if isinstance(fault, Unreachable)), None)
        if away or not all(isinstance(fault, (TimedOut, AccessDenied)) for fault in faults):
            return away
        return next(iter(faults), None)

    def _look(self, wire: SqlClient, ref: QueueRef, table: JobTable, now: int) -> _Seen:
        flavour, began = table_verdicts.flavour(wire, table), time.perf_counter()
        try:
            found = self._reader.look(wire, ref)
        except StoreError as error:
            # A slow table rests, so that the others get their turn; one that failed at once was not asked.
            was_asked = time.perf_counter() - began > self._database.timeout / 2
            is_slow = isinstance(error, TimedOut) and was_asked and len(self._tables) > 1
            return _Seen(self._unread(ref, flavour, error), due_at=now + LONGEST * is_slow, fault=error)
        took = (time.perf_counter() - began) * 1000
        return _Seen(
            _sample(ref, flavour, found)._replace(read_at=now),
            _owners(ref, found),
            now + min(LONGEST, round(REST * took)),
        )

    def _unread(self, ref: QueueRef, flavour: LibraryVersion, error: StoreError) -> QueueSample:
        """Returns the last good numbers of a table, marked with the error."""
        before = self._seen.get(ref)
        if before is None or before.sample.counts == JobCounts():
            return QueueSample(ref, flavour, error=error.reason)
        return before.sample._replace(error=error.reason, is_old=True)


def _sample(ref: QueueRef, flavour: LibraryVersion, found: TableSample) -> QueueSample:
    """Returns the sample of a table. Its workers are only the owners of running rows, so no owner is no lack of one."""
    return QueueSample(
        ref,
        flavour,
        found.counts,
        is_paused=False,
        oldest_waiting_at=found.oldest_waiting_at,
        oldest_active_at=found.oldest_active_at,
        workers=len(found.owners) if found.owners else None,
    )


def _owners(ref: QueueRef, found: TableSample) -> tuple[Worker, ...]:
    return tuple(
        Worker(
            queue=ref,
            name=owner.name,
            address="",
            age=UNHEARD,
            idle=UNHEARD if owner.heard_at is None else max(0, found.now - owner.heard_at) // SECOND,
            command=f"{owner.rows:,} running",
            connection=owner.name,
        )
        for owner in found.owners or ()
    )
