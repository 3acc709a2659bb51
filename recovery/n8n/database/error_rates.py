"""Counts failed executions by workflow, in n8n's database, among the newest executions."""

from __future__ import annotations

from recovery.domain.n8n.error_rates import LISTED, NEWEST, WINDOW, ErrorRate
from recovery.n8n.database import executions
from recovery.n8n.database.schema import N8nTables
from recovery.stores.sql.sql_client import SqlClient

_FAILED = "('error', 'crashed', 'failed')"
_ENDED = "('success', 'warning', 'error', 'crashed', 'failed')"


def of_workflows(wire: SqlClient, tables: N8nTables, now: int) -> tuple[ErrorRate, ...]:
    """Returns workflows with failures, most first, at most LISTED. What n8n does not save is not in its database.

    Rows that n8n has marked as deleted count too: they ended all the same. Raises StoreError.
    """
    chosen = (
        f'SELECT "workflowId"::text, count(*) FILTER (WHERE status IN {_FAILED}), count(*) FROM {tables.executions}'  # noqa: S608
        f" WHERE id > (SELECT COALESCE(max(id), 0) FROM {tables.executions}) - {NEWEST}"
        f" AND {executions.ms('stoppedAt')} > %s AND status IN {_ENDED} AND mode <> 'manual'"
        f" GROUP BY 1 HAVING count(*) FILTER (WHERE status IN {_FAILED}) > 0 ORDER BY 2 DESC, 3, 1 LIMIT {LISTED}"
    )
    with wire.session() as session:
        rows = session.all(chosen, (now - WINDOW,))
    names = executions.titles(wire, tables, [workflow for workflow, *_ in rows if workflow])
    return tuple(ErrorRate(workflow or "", names.get(workflow, ""), failed, ended) for workflow, failed, ended in rows)
