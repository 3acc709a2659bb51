"""Reads one job of n8n's with its execution, for the page of the job."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.backends.bull import n8n_jobs
from recovery.config import N8nInstallation
from recovery.domain.identifiers import JobRef
from recovery.domain.n8n.comparison import JobExecutionPair
from recovery.domain.n8n.executions import Execution
from recovery.errors import StoreError, Unsupported
from recovery.n8n import comparison_store
from recovery.n8n.comparison import NO_DATABASE
from recovery.n8n.database import executions, schema
from recovery.stores.registry import ConnectionRegistry, registry
from recovery.stores.sql.sql_client import as_sql_client
from recovery.stores.state.shared_read import windows


@dataclass(frozen=True, slots=True)
class JobExecution:
    """A job with its execution. `pair` is that of the newest comparison, if it is a mismatch. `fault`: why the
    execution could not be read.
    """

    n8n: N8nInstallation
    id: str
    workflow: str
    execution: Execution | None = None
    title: str = ""
    pair: JobExecutionPair | None = None
    fault: str = ""


def execution_of_job(job: JobRef, data: str) -> JobExecution | None:
    """Returns the job's execution; None if its queue belongs to no configured n8n, or its data names no execution."""
    stores = registry()
    n8n = stores.config.n8n_of(job.queue)
    id, workflow = n8n_jobs.named(data.encode("utf-8", "surrogateescape"))
    if n8n is None or not id:
        return None
    listed = (pair for truth in comparison_store.newest() if truth.name == n8n.name for pair in truth.pairs)
    pair = next((pair for pair in listed if pair.claim is not None and pair.claim.job == job), None)
    if not n8n.database:
        return JobExecution(n8n, id, workflow, fault=NO_DATABASE)
    try:
        execution, title = windows.get(("execution", n8n.name, id), lambda: _read(stores, n8n, id, workflow))
    except (StoreError, Unsupported) as error:
        return JobExecution(n8n, id, workflow, pair=pair, fault=str(error))
    return JobExecution(n8n, id, execution.workflow if execution else workflow, execution, title, pair)


def _read(stores: ConnectionRegistry, n8n: N8nInstallation, id: str, workflow: str) -> tuple[Execution | None, str]:
    wire = as_sql_client(stores.wire(n8n.database))
    known = schema.cached_tables(wire, n8n)
    execution = executions.fetch_by_ids(wire, known, [id]).get(id)
    whose = execution.workflow if execution else workflow
    return execution, executions.titles(wire, known, [whose]).get(whose, "") if whose else ""
