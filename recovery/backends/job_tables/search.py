"""Searches one state of a job table, slice by slice: the database looks at each row, the hits come here."""

from __future__ import annotations

from recovery.backends.base import LIST_LIMIT, TEXT_LIMIT
from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables import rows
from recovery.backends.job_tables.introspection import id_of
from recovery.backends.job_tables.queries import TableContext
from recovery.config import Engine
from recovery.domain.jobs import JobSearchSlice, JobState

BUDGET = 5000  # rows of one slice at most, whatever is asked for


def run(scene: TableContext, state: JobState, *, name: str, data: str, cursor: str, budget: int) -> JobSearchSlice:
    """Searches one slice. The name is compared without case, the data as it is. Rows come in the order of their ids."""
    if not scene.shape.table.states.of(state):
        return JobSearchSlice()
    condition, values = scene.within(state)
    start = scene.shape.id(cursor) if cursor else None
    if start is not None:
        condition, values = f"{condition} AND {scene.column('id')} > %s", (*values, start)
    hit, sought = _hit(scene, name, data)
    size = max(1, min(budget, BUDGET))
    replies = scene.session.all(
        f"SELECT {scene.column('id')}, {hit}, {_too_long(scene, data)} FROM {scene.place} WHERE {condition}"
        f" ORDER BY {scene.column('id')} LIMIT {size}",
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
    found = job_tables_queries.by_ids(scene, wanted)
    there = (job_tables_queries.row_of(found.get(id)) for id in wanted)
    return JobSearchSlice(
        tuple(row for row in there if row is not None and row.state is state),
        examined,
        job_tables_queries.count(scene, state),
        "" if is_end else id_of(replies[examined - 1][0]),
        sum(bool(too_long) for _, _, too_long in replies[:examined]),
    )


def _hit(scene: TableContext, name: str, data: str) -> tuple[str, tuple[str, ...]]:
    """Returns the condition and its parameters. What has no column holds nothing that could be found."""
    conditions: list[str] = []
    sought: list[str] = []
    for role, text in (("name", name), ("data", data)):
        if not text:
            continue
        column = getattr(scene.shape.table.columns, role)
        if not column:
            return "0 = 1", ()
        cut = rows.cut(scene.session, scene.shape, column, TEXT_LIMIT)
        conditions.append(_contains(scene, f"LOWER({cut})" if role == "name" else cut))
        sought.append(text.lower() if role == "name" else text)
    return " AND ".join(conditions) or "1 = 1", tuple(sought)


def _contains(scene: TableContext, text: str) -> str:
    if scene.session.engine is Engine.POSTGRESQL:
        return f"COALESCE(strpos({text}, %s) > 0, FALSE)"
    return f"COALESCE(INSTR({text}, %s) > 0, 0)"


def _too_long(scene: TableContext, data: str) -> str:
    column = scene.shape.table.columns.data
    if not data or not column:
        return "0 = 1"
    return f"COALESCE({rows.size(scene.session, scene.shape, column)} > {TEXT_LIMIT}, 0 = 1)"
