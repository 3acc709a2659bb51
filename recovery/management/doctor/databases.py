"""Checks databases with job tables: whether they answer, each table is as configured, and lost rows can be found."""

from __future__ import annotations

import time
from collections.abc import Iterator

from recovery.backends.job_tables.reader import TableReader
from recovery.config import Database, JobTable
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import JobCounts
from recovery.errors import StatementRefused, StoreError
from recovery.management.doctor.findings import DoctorFinding, good, silent, warning, wrong
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

_SLOW_MS = 500.0  # a slower read makes the numbers of its table stale


def databases(registry: ConnectionRegistry) -> Iterator[DoctorFinding]:
    for database in registry.config.databases:
        about = f"database {database.name}"
        wire, listed = as_sql_client(registry.wire(database.name)), registry.config.tables_of(database.name)
        try:
            yield from _answers(about, wire)
            for table in listed:
                yield from _table(f"table {database.name}/{table.name}", wire, table)
        except StoreError as error:
            yield silent(about, error)
        yield from _used(about, registry, database)


def _answers(about: str, wire: SqlClient) -> Iterator[DoctorFinding]:
    began = time.perf_counter()
    with wire.session() as session:
        session.all("SELECT 1")
    yield good(about, f"{wire.target} answers in {(time.perf_counter() - began) * 1000:.1f} ms.")


def _used(about: str, registry: ConnectionRegistry, database: Database) -> Iterator[DoctorFinding]:
    named = {table.database for table in registry.config.tables}
    named |= {one.database for one in registry.config.n8n}
    named |= {hook.follow.database for hook in registry.config.hooks if hook.follow}
    if database.name not in named:
        yield warning(about, "It is not used.", "Refer to it in [[tables]], [[hooks]] or [[n8n]], or remove it.")


def _table(about: str, wire: SqlClient, table: JobTable) -> Iterator[DoctorFinding]:
    began = time.perf_counter()
    try:
        found = TableReader().look(wire, QueueRef(wire.database.name, table.name))
    except StatementRefused as error:
        yield wrong(about, f"It cannot be read: {error.reason}.", "Check [[tables]], and what our user may read.")
        return
    took = (time.perf_counter() - began) * 1000
    yield good(about, f"{_words(found.counts)} It was read in {took:.0f} ms.")
    if took > _SLOW_MS:
        remedy = f"Add an index on its column {table.columns.state}."
        yield warning(about, "Reading it is slow, so its numbers are stale.", remedy)
    if not table.has_proof and table.age_limit is None:
        remedy = "Name lease_until or heartbeat, or an age_limit with started_at."
        yield warning(about, "A row does not show whether a worker runs it: a sweep cannot find lost rows.", remedy)


def _words(counts: JobCounts) -> str:
    told = {"waiting": counts.waiting, "running": counts.active, "done": counts.completed, "failed": counts.failed}
    said = ", ".join(f"{'very many' if count is None else f'{count:,}'} {name}" for name, count in told.items())
    return f"{said[0].upper()}{said[1:]}."
