"""Asks n8n's public API for a retry, and waits until its new execution is seen in n8n's database."""

from __future__ import annotations

import time
from dataclasses import dataclass

from recovery.connections.sql import SqlWire
from recovery.domain.acting import Done, Outcome
from recovery.domain.jobs import State
from recovery.errors import StoreError
from recovery.n8n import executions, public
from recovery.n8n.public import Retry
from recovery.n8n.tables import Tables

_PAUSE = 0.1  # seconds between two looks for the new execution
_LATE = "n8n neither answered nor created a new execution within {seconds:g} s. Check n8n for a retry of it."
_PERHAPS = "{trouble} It may have started anyway: check n8n for a retry of it."


@dataclass(frozen=True, slots=True)
class RetryOutcome:
    """Result of a retry. `made`: the new execution; "" when there is none, or it is not known."""

    done: Done
    made: str = ""


def retry(wire: SqlWire, known: Tables, asked: Retry, state: State) -> RetryOutcome:
    """Retries an execution; returns on the new execution in the database or on n8n's answer, whichever comes first."""
    id = asked.execution
    newest = executions.newest(wire, known)
    asked.start()
    try:
        made = _made(wire, known, asked, newest)
    finally:
        asked.leave()
    if made:
        return RetryOutcome(Done(id, Outcome.DONE, f"It runs again as execution {made}."), made)
    if not asked.trouble:
        return RetryOutcome(Done(id, Outcome.UNKNOWN, _LATE.format(seconds=public.SECONDS)))
    if asked.is_unsure:
        return RetryOutcome(Done(id, Outcome.UNKNOWN, _PERHAPS.format(trouble=asked.trouble)))
    return RetryOutcome(Done(id, Outcome.REFUSED, asked.trouble, state))


def _made(wire: SqlWire, known: Tables, asked: Retry, newest: int) -> str:
    """Returns the id of the new execution; "" when n8n refused, or time is up."""
    until = time.monotonic() + public.SECONDS
    while time.monotonic() < until:
        is_over = asked.is_over  # read before the look: what n8n answered by then is in the database
        made = asked.id or _found(wire, known, asked.execution, newest)
        if made or is_over:
            return made
        asked.join(_PAUSE)
    return ""


def _found(wire: SqlWire, known: Tables, id: str, newest: int) -> str:
    try:
        return executions.retry_of(wire, known, id, newest)
    except StoreError:
        return ""
