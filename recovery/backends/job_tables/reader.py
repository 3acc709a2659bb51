"""Reader of job tables: answers from rows what a queue's pages ask."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recovery.backends.base import LIST_LIMIT, TEXT_LIMIT, Capabilities, Command, Replies
from recovery.backends.job_tables import counts, rows
from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables.counts import TableSample
from recovery.backends.job_tables.introspection import id_of
from recovery.backends.job_tables.queries import TableContext
from recovery.config import Engine
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.jobs import (
    BoundedText,
    Job,
    JobFamily,
    JobRow,
    JobRowPage,
    JobSearchSlice,
    JobState,
    LogPage,
    SchedulerRow,
)
from recovery.domain.queues.types import LibraryVersion, QueueSample
from recovery.errors import JobMissing, Unsupported

# -- search
# Searches one state of a job table, slice by slice: the database looks at each row, the hits come here.


BUDGET = 5000  # rows of one slice at most, whatever is asked for


def run(context: TableContext, state: JobState, *, name: str, data: str, cursor: str, budget: int) -> JobSearchSlice:
    """Searches one slice. The name is compared without case, the data as it is. Rows come in the order of their ids."""
    if not context.shape.table.states.of(state):
        return JobSearchSlice()
    condition, values = context.within(state)
    start = context.shape.id(cursor) if cursor else None
    if start is not None:
        condition, values = f"{condition} AND {context.column('id')} > %s", (*values, start)
    hit, sought = _hit(context, name, data)
    size = max(1, min(budget, BUDGET))
    replies = context.session.all(
        f"SELECT {context.column('id')}, {hit}, {_too_long(context, data)} FROM {context.place} WHERE {condition}"
        f" ORDER BY {context.column('id')} LIMIT {size}",
        (*sought, *values),
    )
    wanted: list[str] = []
    examined = 0
    for id, is_hit, _ in replies:
        examined += 1
        wanted += [id_of(id)] if is_hit else []
        if len(wanted) >= LIST_LIMIT:
            break
    is_end = examined == len(replies) < size
    found = job_tables_queries.by_ids(context, wanted)
    there = (job_tables_queries.row_of(found.get(id)) for id in wanted)
    return JobSearchSlice(
        tuple(row for row in there if row is not None and row.state is state),
        examined,
        job_tables_queries.count(context, state),
        "" if is_end else id_of(replies[examined - 1][0]),
        sum(bool(too_long) for _, _, too_long in replies[:examined]),
    )


def _hit(context: TableContext, name: str, data: str) -> tuple[str, tuple[str, ...]]:
    """Returns the condition and its parameters. What has no column holds nothing that could be found."""
    conditions: list[str] = []
    sought: list[str] = []
    for role, text in (("name", name), ("data", data)):
        if not text:
            continue
        column = getattr(context.shape.table.columns, role)
        if not column:
            return "0 = 1", ()
        cut = rows.cut(context.session, context.shape, column, TEXT_LIMIT)
        conditions.append(_contains(context, f"LOWER({cut})" if role == "name" else cut))
        sought.append(text.lower() if role == "name" else text)
    return " AND ".join(conditions) or "1 = 1", tuple(sought)


def _contains(context: TableContext, text: str) -> str:
    if context.session.engine is Engine.POSTGRESQL:
        return f"COALESCE(strpos({text}, %s) > 0, FALSE)"
    return f"COALESCE(INSTR({text}, %s) > 0, 0)"


def _too_long(context: TableContext, data: str) -> str:
    column = context.shape.table.columns.data
    if not data or not column:
        return "0 = 1"
    return f"COALESCE({rows.size(context.session, context.shape, column)} > {TEXT_LIMIT}, 0 = 1)"


# -- reader


STATES = (JobState.ACTIVE, JobState.WAITING, JobState.FAILED, JobState.COMPLETED)
_NO_PLAN = "A job table is read with SQL, not with Redis commands."
_NOTHING = BoundedText("", 0)


class TableReader:
    """Reader of job tables. Stateless: the table is the wire's, by the queue's base."""

    def capabilities(self, flavour: LibraryVersion) -> Capabilities:
        return Capabilities(
            states=STATES,
            schedulers=False,
            families=False,
            metrics=False,
            names_workers=True,
            global_concurrency=False,
            global_limit=False,
        )

    # -- the snapshot

    def look(self, wire: object, ref: QueueRef) -> TableSample:
        """Reads all counts, the oldest of each, and which worker has what; raises StoreError."""
        with job_tables_queries.table_context(wire, ref) as context:
            return counts.sample(context)

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        raise Unsupported(_NO_PLAN)

    def sample(
        self, ref: QueueRef, flavour: LibraryVersion, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        raise Unsupported(_NO_PLAN)

    def age_plan(self, ref: QueueRef, id: str) -> Command:
        raise Unsupported(_NO_PLAN)

    # -- one table

    def page(
        self,
        wire: object,
        ref: QueueRef,
        state: JobState,
        *,
        cursor: str = "",
        size: int = 25,
        oldest_first: bool | None = None,
        by_script: bool = False,
    ) -> JobRowPage:
        with job_tables_queries.table_context(wire, ref) as context:
            return job_tables_queries.page(context, state, cursor=cursor, size=size, oldest_first=oldest_first)

    def following(self, wire: object, ref: QueueRef, wanted: Sequence[tuple[str, JobState]]) -> None:
        """Returns None: no script changes a table."""

    def row(self, wire: object, ref: QueueRef, id: str) -> JobRow:
        (found,) = self.rows(wire, ref, [(id, JobState.UNKNOWN)])
        if found is None:
            raise _missing(ref, id)
        return found

    def rows(
        self, wire: object, ref: QueueRef, wanted: Sequence[tuple[str, JobState]], *, by_script: bool = False
    ) -> tuple[JobRow | None, ...]:
        with job_tables_queries.table_context(wire, ref) as context:
            found = job_tables_queries.by_ids(context, [id for id, _ in wanted])
        return tuple(job_tables_queries.row_of(found.get(id)) for id, _ in wanted)

    def job(self, wire: object, ref: QueueRef, id: str, *, limit: int = TEXT_LIMIT) -> Job:
        with job_tables_queries.table_context(wire, ref) as context:
            look = job_tables_queries.by_ids(context, [id]).get(id)
            fields = _fields(context, look.id, limit) if look else {}
        if look is None or not fields:
            raise _missing(ref, id)
        columns = context.shape.table.columns
        reason = fields[columns.last_error].value if columns.last_error else ""
        data = fields[columns.data] if columns.data else _NOTHING
        named = tuple(fields.items())
        return Job(look.row, data, _NOTHING, _NOTHING, reason, (), named, log_count=0)

    def logs(self, wire: object, ref: QueueRef, id: str, *, start: int = 0, size: int = 200) -> LogPage:
        return LogPage((), start, 0)

    def family(self, wire: object, ref: QueueRef, id: str) -> JobFamily:
        return JobFamily(None)

    def schedulers(self, wire: object, ref: QueueRef, *, size: int = 100) -> tuple[SchedulerRow, ...]:
        return ()

    def metrics(
        self, wire: object, ref: QueueRef, now: int, *, minutes: int
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
        return None

    def search(
        self,
        wire: object,
        ref: QueueRef,
        state: JobState,
        *,
        name: str = "",
        data: str = "",
        cursor: str = "",
        budget: int = 1000,
    ) -> JobSearchSlice:
        with job_tables_queries.table_context(wire, ref) as context:
            return run(context, state, name=name, data=data, cursor=cursor, budget=budget)


def _fields(context: TableContext, id: Any, limit: int) -> dict[str, BoundedText]:
    """Returns every configured column by name, each cut on its own. Of others nothing is read: they are not ours."""
    session, shape = context.session, context.shape
    names = shape.table.columns.used
    columns = [part for name in names for part in _cut(context, name, limit)]
    replies = session.all(f"SELECT {', '.join(columns)} FROM {context.place} WHERE {context.column('id')} = %s", [id])
    if not replies:
        return {}
    values, sizes = replies[0][::2], replies[0][1::2]
    return {name: _text(value, size) for name, value, size in zip(names, values, sizes, strict=True)}


def _cut(context: TableContext, name: str, limit: int) -> tuple[str, str]:
    return rows.cut(context.session, context.shape, name, limit), rows.size(context.session, context.shape, name)


def _text(value: Any, size: Any) -> BoundedText:
    return BoundedText(rows.prose(value), int(size or 0))


def _missing(ref: QueueRef, id: str) -> JobMissing:
    return JobMissing(f"There is no row {printable(id)} in {ref.label} (any more).")
