"""Finds rows left running by a worker that is gone, and puts them back to wait.

Two occasions. A worker starts and says so: then what it had before it died has no worker. Or time goes by: then it is a
row whose lease is over, whose heartbeat is old, or, where neither is kept, which has run too long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables import updates
from recovery.backends.job_tables.operator import ORPHANED, orphan_update, raise_if_read_only
from recovery.backends.job_tables.queries import TableContext
from recovery.backends.job_tables.rows import RowSnapshot, held_until
from recovery.backends.job_tables.updates import RowRefusal, RowUpdate
from recovery.config import JobTable
from recovery.domain.actions.types import Outcome, ScriptOutcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.time_units import age
from recovery.errors import BadOrder
from recovery.stores.sql.sql_client import as_sql_client

log = logging.getLogger(__name__)

WINDOW = 500  # running rows read at once
MOVED = "It was started again meanwhile."


@dataclass(frozen=True, slots=True)
class SweepTrigger:
    """Reason for a sweep. `owner`: the worker that starts; "": the only one. `after`: ms beyond the limits."""

    is_start: bool = False
    owner: str = ""
    after: int = 0

    def evidence(self, table: JobTable, row: JobRow, now: int, began: int) -> str:
        """Returns why no worker holds this row, in one sentence; "" when one may hold it."""
        if self.is_start:
            return self._of_start(table, row, now, began)
        until, by = held_until(table, row)
        if until is None or until + self.after > now:
            return ""
        return _OVER[by](table, row, now)

    def _of_start(self, table: JobTable, row: JobRow, now: int, began: int) -> str:
        if row.processed_at is not None and row.processed_at > began:
            return ""  # taken after the start
        if self.owner:
            return f"Its owner {row.worker} has just started." if row.worker == self.owner else ""
        until, by = held_until(table, row)
        if until is not None and by != "age" and until > now:
            return ""  # a row of another worker that lives
        return "It was running when its worker started."


_OVER = {
    "lease": lambda table, row, now: f"Its lease ended {age(now - (row.lease_until or now))} ago.",
    "heartbeat": lambda table, row, now: f"Its last heartbeat was {age(now - (row.heartbeat_at or now))} ago.",
    "age": lambda table, row, now: f"It has been running for {age(now - (row.processed_at or now))}.",
}


@dataclass(frozen=True, slots=True)
class OrphanRow:
    """Row that no worker holds, as it was seen."""

    look: RowSnapshot
    evidence: str


@dataclass(frozen=True, slots=True)
class Swept:
    """Result of a sweep. `left` are running rows that may be held, `refused` those that changed meanwhile."""

    requeued: int = 0
    failed: int = 0
    left: int = 0
    refused: int = 0
    more: bool = False  # it stopped at the most that it may do

    @property
    def words(self) -> str:
        said = f"{self.requeued:,} rows requeued, {self.failed:,} failed"
        said += f", {self.left:,} left running" if self.left else ""
        said += f", {self.refused:,} changed meanwhile" if self.refused else ""
        return said + (", and more are there" if self.more else "")


def check(table: JobTable, occasion: SweepTrigger) -> None:
    """Raises BadOrder if the table has no owner column: then one owner's rows cannot be told from others'."""
    if occasion.owner and not table.columns.owner:
        raise BadOrder(f"The table {table.name} has no owner column, so a sweep cannot be limited to one owner.")


def orphans(wire: object, ref: QueueRef, occasion: SweepTrigger) -> Iterator[tuple[int, tuple[OrphanRow, ...]]]:
    """Yields, window by window, how many running rows were read, and those that no worker holds. Raises StoreError.

    No connection is held between two windows.
    """
    last: RowSnapshot | None = None
    began: int | None = None
    check(as_sql_client(wire).table(ref.base), occasion)
    while True:
        with job_tables_queries.table_context(wire, ref) as context:
            looks = job_tables_queries.window(context, JobState.ACTIVE, WINDOW, last)
            table = context.shape.table
        began = began if began is not None or not looks else looks[0].now
        found = ((look, occasion.evidence(table, look.row, look.now, began or 0)) for look in looks)
        yield len(looks), tuple(OrphanRow(look, evidence) for look, evidence in found if evidence)
        if len(looks) < WINDOW:
            return
        last = looks[-1]


def recover_rows(
    context: TableContext, found: Sequence[OrphanRow], occasion: SweepTrigger, error: str = ORPHANED
) -> tuple[ScriptOutcome, ...]:
    """Recovers at most a chunk of them; one answer each, in their order. Raises StoreError with nothing of it done."""
    table = context.shape.table
    seen = {one.look.row.id: one.look for one in found}

    def decide(look: RowSnapshot) -> RowUpdate | RowRefusal:
        before = seen[look.row.id]
        if look.row.state is not JobState.ACTIVE:
            return RowRefusal(f"It is {look.row.state.value} now.")
        if (look.row.processed_at, look.row.attempts, look.row.worker) != _told(before):
            return RowRefusal(MOVED)
        if not occasion.evidence(table, look.row, look.now, before.now):
            return RowRefusal("A worker has renewed its lease or heartbeat meanwhile.")
        return orphan_update(look, error)

    return updates.update_rows(context, list(seen), decide)


def sweep(wire: object, ref: QueueRef, occasion: SweepTrigger, most: int) -> Swept:
    """Recovers at most so many orphaned rows: a worker calls it at its start for its own table. The count is logged."""
    swept = Swept()
    raise_if_read_only(as_sql_client(wire))
    for looked, found in orphans(wire, ref, occasion):
        swept = replace(swept, left=swept.left + looked - len(found))
        for start in range(0, len(found), updates.CHUNK):
            chunk, room = found[start : start + updates.CHUNK], most - swept.requeued - swept.failed
            swept = replace(swept, more=swept.more or len(chunk) > room)
            if chunk[:room]:
                with job_tables_queries.table_context(wire, ref) as context:
                    swept = _added(swept, recover_rows(context, chunk[:room], occasion))
        if swept.more:
            break
    log.info("sweep of %s: %s", ref, swept.words)
    return swept


def _told(look: RowSnapshot) -> tuple[int | None, int, str]:
    return look.row.processed_at, look.row.attempts, look.row.worker


def _added(swept: Swept, done: Sequence[ScriptOutcome]) -> Swept:
    made = [one for one in done if one.outcome is Outcome.DONE]
    failed = sum(one.state is JobState.FAILED for one in made)
    return replace(
        swept,
        requeued=swept.requeued + len(made) - failed,
        failed=swept.failed + failed,
        refused=swept.refused + len(done) - len(made),
    )
