"""Reads executions in small steps: those that have not ended through a cursor, others by their ids.

A cursor and not pages by id: in a table of millions, of which the newest are open, the planner would walk through all
that have ended to fill a page. A cursor goes once along the index on the status, and each step of it is short. It
lives in a transaction that can only read. What an execution did (`execution_data`) is never asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress

from recovery.domain.n8n.executions import OPEN, Execution, status
from recovery.errors import StoreError
from recovery.n8n.database.schema import N8nTables
from recovery.stores.sql.sql_client import Row, SqlClient, SqlSession

STEP = 2_000  # rows a statement: some 5 ms
OPEN_LIMIT = 200_000  # rows of one reading; n8n itself reads a hundred
NAME_LIMIT = 200  # characters of a workflow's name; n8n allows 128
RETRY_WINDOW = 10_000  # executions that are searched for retries: some ms by the primary key
_WORD = 40  # characters of a mode or a status
_LAST_ID = 2**31 - 1


def still_open(wire: SqlClient, tables: N8nTables) -> Iterator[list[Execution]]:
    """Yields all executions that have not ended, at most OPEN_LIMIT, step by step. Raises StoreError."""
    alive = ' AND "deletedAt" IS NULL' if tables.has("deletedAt") else ""
    words = ", ".join(f"'{one.value}'" for one in OPEN)
    chosen = f"SELECT {_columns(tables)} FROM {tables.executions} WHERE status IN ({words}){alive}"  # noqa: S608
    with wire.session() as session, _reading(session):
        session.change(f"DECLARE unstall NO SCROLL CURSOR FOR {chosen}")
        for _ in range(OPEN_LIMIT // STEP):
            rows = session.all(f"FETCH FORWARD {STEP} FROM unstall")
            yield [_execution(row) for row in rows]
            if len(rows) < STEP:
                return


def fetch_by_ids(wire: SqlClient, tables: N8nTables, ids: Iterable[str]) -> dict[str, Execution]:
    """Returns executions by their ids, without those that are not in the database. Raises StoreError."""
    numbers = [int(id) for id in ids if 0 < int(id) <= _LAST_ID]
    found: dict[str, Execution] = {}
    chosen = f"SELECT {_columns(tables)} FROM {tables.executions} WHERE id = ANY(%s)"  # noqa: S608
    with wire.session() as session, _reading(session):
        for start in range(0, len(numbers), STEP):
            rows = session.all(chosen, (numbers[start : start + STEP],))
            found.update((execution.id, execution) for execution in map(_execution, rows))
    return found


def lock_executions(session: SqlSession, tables: N8nTables, ids: Iterable[str]) -> dict[str, Execution]:
    """Reads executions like `of_ids` and locks their rows until the caller's transaction ends. At most STEP."""
    numbers = sorted({int(id) for id in ids if 0 < int(id) <= _LAST_ID})[:STEP]  # one order: no deadlock
    chosen = f"SELECT {_columns(tables)} FROM {tables.executions} WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE"  # noqa: S608
    return {execution.id: execution for execution in map(_execution, session.all(chosen, (numbers,)))}


def newest(wire: SqlClient, tables: N8nTables) -> int:
    """Returns the highest id; 0 when there is none. Raises StoreError."""
    with wire.session() as session:
        return int(session.all(f"SELECT COALESCE(max(id), 0) FROM {tables.executions}")[0][0])  # noqa: S608


def retry_of(wire: SqlClient, tables: N8nTables, id: str, after: int) -> str:
    """Returns the first retry of this execution with a higher id than `after`; "" for none.

    Retries have no index: only the few rows above `after` are read. Raises StoreError.
    """
    chosen = f'SELECT min(id) FROM {tables.executions} WHERE id > %s AND "retryOf" = %s'  # noqa: S608
    with wire.session() as session:
        found = session.all(chosen, (after, id))[0][0]
    return str(found or "")


def first_retries(wire: SqlClient, tables: N8nTables, workflows: Mapping[str, str]) -> dict[str, str]:
    """Returns the first retry of each of these executions, given by id with their workflow, without those that have
    none. At most STEP.

    Retries have no index: executions of these workflows behind the oldest of these ids are read, which n8n has an index
    for. Raises StoreError.
    """
    wanted = sorted({id for id in workflows if 0 < int(id) <= _LAST_ID}, key=int)[:STEP]
    if not wanted or not tables.has("retryOf"):
        return {}
    named = sorted({workflows[id] for id in wanted})
    chosen = (
        f'SELECT "retryOf", min(id) FROM {tables.executions}'  # noqa: S608
        ' WHERE "workflowId"::text = ANY(%s) AND id > %s AND "retryOf" = ANY(%s) GROUP BY "retryOf"'
    )
    with wire.session() as session, _reading(session):
        return {str(of): str(id) for of, id in session.all(chosen, (named, int(wanted[0]), wanted))}


def newest_retries(wire: SqlClient, tables: N8nTables, ids: Iterable[str]) -> dict[str, str]:
    """Returns the newest retry of each of these, among the newest RETRY_WINDOW executions: retries have no index.

    Raises StoreError.
    """
    wanted = sorted(set(ids))
    if not tables.has("retryOf"):
        return {}
    chosen = (
        f'SELECT "retryOf", max(id) FROM {tables.executions}'  # noqa: S608
        f" WHERE id > (SELECT COALESCE(max(id), 0) FROM {tables.executions}) - {RETRY_WINDOW}"
        ' AND "retryOf" = ANY(%s) GROUP BY 1'
    )
    found: dict[str, str] = {}
    with wire.session() as session, _reading(session):
        for start in range(0, len(wanted), STEP):
            found.update((of, str(id)) for of, id in session.all(chosen, (wanted[start : start + STEP],)))
    return found


def titles(wire: SqlClient, tables: N8nTables, workflows: Iterable[str]) -> dict[str, str]:
    """Returns the names of these workflows, cut to NAME_LIMIT. Raises StoreError."""
    wanted, found = sorted(set(workflows)), dict[str, str]()
    chosen = f"SELECT id::text, left(name, {NAME_LIMIT}) FROM {tables.workflows} WHERE id::text = ANY(%s)"  # noqa: S608
    with wire.session() as session, _reading(session):
        for start in range(0, len(wanted), STEP):
            found.update(session.all(chosen, (wanted[start : start + STEP],)))
    return found


@contextmanager
def _reading(session: SqlSession) -> Iterator[None]:
    """Opens a read-only transaction: all statements see the same moment, and none can write, whatever rights our user
    has.
    """
    session.change("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    except BaseException:
        with suppress(StoreError):
            session.change("ROLLBACK")
        raise
    session.change("ROLLBACK")


def _columns(tables: N8nTables) -> str:
    created = ms("createdAt") if tables.has("createdAt") else "NULL"
    deleted = '"deletedAt" IS NOT NULL' if tables.has("deletedAt") else "FALSE"
    retried = f'left("retryOf", {_WORD})' if tables.has("retryOf") else "NULL"
    words = [f"left({name}, {_WORD})" for name in ('"workflowId"::text', "mode", "status")]
    times = [ms(name) for name in ("startedAt", "stoppedAt", "waitTill")]
    return ", ".join(["id", *words, "finished", created, *times, retried, deleted])


def ms(column: str) -> str:
    """Returns the SQL of a time as ms since 1970. Without a zone, as before n8n 1.5, it is taken for UTC."""
    return f'(extract(epoch FROM "{column}") * 1000)::bigint'


def _execution(row: Row) -> Execution:
    id, workflow, mode, written, is_finished, created, started, stopped, wait, retried, is_deleted = row
    stands = status(written, is_finished=bool(is_finished), has_stopped=stopped is not None)
    return Execution(
        str(id), workflow or "", mode or "", stands, created, started, stopped, wait, retried or "", is_deleted
    )
