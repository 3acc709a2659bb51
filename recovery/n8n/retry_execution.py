"""Asks n8n's public API for a retry, and waits until its new execution is seen in n8n's database."""

from __future__ import annotations

import time
from dataclasses import dataclass

from recovery.domain.actions.types import Outcome, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.errors import StoreError
from recovery.n8n import api_client
from recovery.n8n.api_client import RetryRequest
from recovery.n8n.database import executions
from recovery.n8n.database.schema import N8nTables
from recovery.stores.sql.sql_client import SqlClient

_PAUSE = 0.1  # seconds between two looks for the new execution
_LATE = "n8n neither answered nor created a new execution within {seconds:g} s. Check n8n for a retry of it."
_PERHAPS = "{trouble} It may have started anyway: check n8n for a retry of it."


@dataclass(frozen=True, slots=True)
class ExecutionRetryOutcome:
    """Result of a retry. `made`: the new execution; "" when there is none, or it is not known."""

    done: ScriptOutcome
    made: str = ""


def retry(wire: SqlClient, known: N8nTables, asked: RetryRequest, state: JobState) -> ExecutionRetryOutcome:
    """Retries an execution; returns on the new execution in the database or on n8n's answer, whichever comes first."""
    id = asked.execution
    newest = executions.newest(wire, known)
    asked.start()
    try:
        made = _made(wire, known, asked, newest)
    finally:
        asked.leave()
    if made:
        return ExecutionRetryOutcome(ScriptOutcome(id, Outcome.DONE, f"It runs again as execution {made}."), made)
    if not asked.trouble:
        return ExecutionRetryOutcome(ScriptOutcome(id, Outcome.UNKNOWN, _LATE.format(seconds=api_client.SECONDS)))
    if asked.is_unsure:
        return ExecutionRetryOutcome(ScriptOutcome(id, Outcome.UNKNOWN, _PERHAPS.format(trouble=asked.trouble)))
    return ExecutionRetryOutcome(ScriptOutcome(id, Outcome.REFUSED, asked.trouble, state))


def _made(wire: SqlClient, known: N8nTables, asked: RetryRequest, newest: int) -> str:
    """Returns the id of the new execution; "" when n8n refused, or time is up."""
    until = time.monotonic() + api_client.SECONDS
    while time.monotonic() < until:
        is_over = asked.is_over  # read before the look: what n8n answered by then is in the database
        made = asked.id or _found(wire, known, asked.execution, newest)
        if made or is_over:
            return made
        asked.join(_PAUSE)
    return ""


def _found(wire: SqlClient, known: N8nTables, id: str, newest: int) -> str:
    try:
        return executions.retry_of(wire, known, id, newest)
    except StoreError:
        return ""
