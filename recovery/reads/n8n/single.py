"""Reads one job of n8n's with its execution, for the page of the job."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.backends.bull import claims
from recovery.config import N8n
from recovery.connections.registry import Registry, registry
from recovery.connections.sql import of
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.pairs import Pair
from recovery.domain.refs import JobRef
from recovery.errors import StoreError, Unsupported
from recovery.n8n import executions, tables
from recovery.reads.n8n import truths
from recovery.reads.n8n.looking import NO_DATABASE
from recovery.reads.shared import windows


@dataclass(frozen=True, slots=True)
class Single:
    """A job with its execution. `pair` is that of the newest comparison, if it is a mismatch. `fault`: why the
    execution could not be read.
    """

    n8n: N8n
    id: str
    workflow: str
    execution: Execution | None = None
    title: str = ""
    pair: Pair | None = None
    fault: str = ""


def of_job(job: JobRef, data: str) -> Single | None:
    """Returns the job's execution; None if its queue belongs to no configured n8n, or its data names no execution."""
    stores = registry()
    n8n = stores.config.n8n_of(job.queue)
    id, workflow = claims.named(data.encode("utf-8", "surrogateescape"))
    if n8n is None or not id:
        return None
    listed = (pair for truth in truths.newest() if truth.name == n8n.name for pair in truth.pairs)
    pair = next((pair for pair in listed if pair.claim is not None and pair.claim.job == job), None)
    if not n8n.database:
        return Single(n8n, id, workflow, fault=NO_DATABASE)
    try:
        execution, title = windows.get(("execution", n8n.name, id), lambda: _read(stores, n8n, id, workflow))
    except (StoreError, Unsupported) as error:
        return Single(n8n, id, workflow, pair=pair, fault=str(error))
    return Single(n8n, id, execution.workflow if execution else workflow, execution, title, pair)


def _read(stores: Registry, n8n: N8n, id: str, workflow: str) -> tuple[Execution | None, str]:
    wire = of(stores.wire(n8n.database))
    known = tables.learned(wire, n8n)
    execution = executions.of_ids(wire, known, [id]).get(id)
    whose = execution.workflow if execution else workflow
    return execution, executions.titles(wire, known, [whose]).get(whose, "") if whose else ""
