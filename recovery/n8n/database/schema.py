"""Reads which tables and columns of n8n exist, and what our user may do with them, so that no statement has to fail
first.

The columns are those of n8n 1.0 to 2.41.3. Without those that are needed nothing is read; with one that none of these
versions has it is read all the same, and nothing is written: what a newer n8n means by it is not known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from recovery.config import N8nInstallation
from recovery.domain.n8n.comparison import N8nRelease
from recovery.errors import Unsupported
from recovery.stores.sql.sql_client import SqlClient, SqlSession

EXECUTIONS, WORKFLOWS, DATA = "execution_entity", "workflow_entity", "execution_data"
NEEDED = ("id", "finished", "mode", "status", "startedAt", "stoppedAt", "waitTill", "workflowId")
_OLD = frozenset({*NEEDED, "retryOf", "retrySuccessId"})
_ONE = _OLD | {"createdAt", "deletedAt"}
_TWO = _ONE | {
    *("storedAt", "tracingContext", "deduplicationKey", "jsonSizeBytes", "binaryDataSizeBytes"),
    *("workflowVersionId", "usedPrivateCredentials"),
}
_NEEDED_OF_WORKFLOWS = ("id", "name")
_NEEDED_OF_DATA = ("executionId", "data")
_NUMBERS = frozenset({"integer", "bigint"})
_TIMES = frozenset({"startedAt", "stoppedAt", "waitTill", "createdAt", "deletedAt"})
# pg_catalog and not information_schema, which hides columns that may not be read as if they did not exist.
_COLUMNS = """
SELECT c.relname, a.attname, pg_catalog.format_type(a.atttypid, NULL),
       pg_catalog.has_column_privilege(c.oid, a.attnum, 'SELECT'),
       pg_catalog.has_column_privilege(c.oid, a.attnum, 'UPDATE')
  FROM pg_catalog.pg_class c
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
 WHERE n.nspname = %s AND c.relname IN (%s, %s, %s) AND c.relkind IN ('r', 'p', 'v')
   AND a.attnum > 0 AND NOT a.attisdropped
"""
_USAGE = """
SELECT pg_catalog.has_schema_privilege(n.oid, 'USAGE') FROM pg_catalog.pg_namespace n WHERE n.nspname = %s
"""


@dataclass(frozen=True, slots=True)
class N8nTables:
    """Tables of one installation. `read_only`: why nothing may be written whatever the rights are; "" when it may."""

    executions: str  # in quotes, with its schema
    workflows: str
    columns: frozenset[str]
    release: N8nRelease
    read_only: str = ""
    writable: frozenset[str] = frozenset()  # columns that our user may change
    reads_data: bool = False  # our user may read what an execution has kept

    def has(self, column: str) -> bool:
        return column in self.columns


@dataclass(frozen=True, slots=True)
class _Column:
    kind: str
    is_readable: bool
    is_writable: bool


def cached_tables(wire: SqlClient, n8n: N8nInstallation) -> N8nTables:
    """Returns the tables like `look`, cached while this process lives, or until a statement was refused (`forget`)."""
    key = _key(n8n)
    known = wire.learned(key)
    if isinstance(known, N8nTables):
        return known
    with wire.session() as session:
        found: N8nTables = wire.learn(key, look(session, n8n))
    return found


def forget(wire: SqlClient, n8n: N8nInstallation) -> None:
    """Forgets the tables, because n8n may have been upgraded."""
    wire.forget(_key(n8n))


def look(session: SqlSession, n8n: N8nInstallation) -> N8nTables:
    """Reads the tables. Raises Unsupported with what is missing, and StoreError."""
    names = {one: n8n.table_prefix + one for one in (WORKFLOWS, EXECUTIONS, DATA)}
    found: dict[str, dict[str, _Column]] = {name: {} for name in names.values()}
    _insist_on_schema(session, n8n.schema)
    for table, column, *rest in session.all(_COLUMNS, (n8n.schema, *names.values())):
        found[table][column] = _Column(*rest)
    executions, workflows, data = (found[names[one]] for one in (EXECUTIONS, WORKFLOWS, DATA))
    _insist(n8n, names[EXECUTIONS], executions, NEEDED)
    _insist(n8n, names[WORKFLOWS], workflows, _NEEDED_OF_WORKFLOWS)
    _check_kinds(names[EXECUTIONS], executions)
    strange = sorted(executions.keys() - _TWO)
    return N8nTables(
        executions=session.quoted(f"{n8n.schema}.{names[EXECUTIONS]}"),
        workflows=session.quoted(f"{n8n.schema}.{names[WORKFLOWS]}"),
        columns=frozenset(name for name, column in executions.items() if column.is_readable),
        release=_release(executions.keys()),
        read_only=_newer(strange) if strange else "",
        writable=frozenset(name for name, column in executions.items() if column.is_writable),
        reads_data=all(name in data and data[name].is_readable for name in _NEEDED_OF_DATA),
    )


def _insist_on_schema(session: SqlSession, schema: str) -> None:
    usage = session.all(_USAGE, (schema,))
    if not usage:
        raise Unsupported(f"There is no schema {schema}. Write schema as in DB_POSTGRESDB_SCHEMA.")
    if not usage[0][0]:
        raise Unsupported(f"Our user may not use the schema {schema}: GRANT USAGE on it (docs/n8n.md).")


def _insist(n8n: N8nInstallation, table: str, found: Mapping[str, _Column], needed: tuple[str, ...]) -> None:
    where = f"{n8n.schema}.{table}"
    if not found:
        raise Unsupported(f"There is no table {where}. Is it n8n's database? Check schema and table_prefix.")
    if missing := [name for name in needed if name not in found]:
        raise Unsupported(f"The table {where} has no column {missing[0]}. {_VERSIONS}")
    if hidden := [name for name in needed if not found[name].is_readable]:
        raise Unsupported(f"Our user may not read {where}, column {hidden[0]}: GRANT SELECT on it (docs/n8n.md).")


_VERSIONS = "Supported: n8n 1.0 to 2.41."


def _check_kinds(table: str, found: Mapping[str, _Column]) -> None:
    """Refuses columns of an unexpected type: they would be compared wrongly, or not at all."""
    if found["id"].kind not in _NUMBERS:
        raise Unsupported(f"The ids in {table} are of the type {found['id'].kind}, not integers. {_VERSIONS}")
    for name in sorted(_TIMES & found.keys()):
        if not found[name].kind.startswith("timestamp"):
            raise Unsupported(
                f"The column {name} in {table} is of the type {found[name].kind}, not a time. {_VERSIONS}"
            )


def _newer(strange: list[str]) -> str:
    return (
        f"n8n's executions have the column {strange[0]}, which no version up to 2.41 has: nothing is written to them."
    )


def _release(columns: Collection[str]) -> N8nRelease:
    if not (_TWO - _ONE).isdisjoint(columns):
        return N8nRelease.TWO
    return N8nRelease.ONE if "createdAt" in columns else N8nRelease.OLD


def _key(n8n: N8nInstallation) -> tuple[str, str, str]:
    return "n8n", n8n.schema, n8n.table_prefix
