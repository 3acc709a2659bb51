"""Samples a job table: how many rows are in each state, since when the oldest is, and which workers own them."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables import rows, timestamps
from recovery.backends.job_tables.queries import TableContext
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import JobCounts

OWNERS = 200  # that are told; more do not fit on a page


@dataclass(frozen=True, slots=True)
class RowOwner:
    """Worker as its rows name it. `heard_at`: when one of its rows was renewed last, where they tell."""

    name: str
    rows: int
    heard_at: int | None = None


@dataclass(frozen=True, slots=True)
class TableSample:
    """Sample of a job table. `owners` None: the table does not tell whose a row is. `now` is the database's clock."""

    now: int
    counts: JobCounts
    oldest_waiting_at: int | None = None
    oldest_active_at: int | None = None
    owners: tuple[RowOwner, ...] | None = None
    read_only: str = ""  # why rows cannot be changed here; "": they can


def sample(context: TableContext) -> TableSample:
    """Runs five or six statements; with an index on the state column each is short."""
    (((now,)),) = context.session.all(f"SELECT {timestamps.clock(context.session.engine)}")
    counts = JobCounts(
        waiting=job_tables_queries.count(context, JobState.WAITING),
        active=job_tables_queries.count(context, JobState.ACTIVE),
        prioritized=0,
        delayed=0,
        waiting_children=0,
        completed=job_tables_queries.count(context, JobState.COMPLETED),
        failed=job_tables_queries.count(context, JobState.FAILED),
        paused=0,
    )
    return TableSample(
        int(now),
        counts,
        _oldest(context, JobState.WAITING, "queued_at") if counts.waiting else None,
        _oldest(context, JobState.ACTIVE, "started_at") if counts.active else None,
        _owners(context) if context.column("owner") else None,
        "The database is configured to be read only." if context.wire.database.read_only else "",
    )


def _oldest(context: TableContext, state: JobState, role: str) -> int | None:
    if not context.column(role):
        return None
    name = getattr(context.shape.table.columns, role)
    condition, values = context.within(state)
    oldest = timestamps.select_time(context.session.engine, f"MIN({context.column(role)})", context.shape.kind(name))
    replies = context.session.all(f"SELECT {oldest} FROM {context.place} WHERE {condition}", values)
    return timestamps.read(replies[0][0], context.shape.kind(name), context.shape.table.timezone)


def _owners(context: TableContext) -> tuple[RowOwner, ...]:
    condition, values = context.within(JobState.ACTIVE)
    owner, heartbeat = context.column("owner"), context.shape.table.columns.heartbeat
    kind = context.shape.kind(heartbeat) if heartbeat else None
    heard = (
        timestamps.select_time(context.session.engine, f"MAX({context.session.quoted(heartbeat)})", kind)
        if kind
        else "NULL"
    )
    replies = context.session.all(
        f"SELECT {owner}, COUNT(*), {heard} FROM {context.place} WHERE {condition} AND {owner} IS NOT NULL"
        f" GROUP BY {owner} ORDER BY {owner} LIMIT {OWNERS}",
        values,
    )
    zone = context.shape.table.timezone
    return tuple(
        RowOwner(rows.prose(name), int(count), timestamps.read(at, kind, zone) if kind else None)
        for name, count, at in replies
    )
