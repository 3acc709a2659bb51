"""Changes rows of a job table, by one statement: an UPDATE that finds a row only as it was just seen.

Chunk by chunk in one transaction: 1. the rows are locked, but for those that another session is changing right now,
which is not waited for; 2. each is read anew, and the caller decides by that; 3. the UPDATE asks once more for the
state, the attempts and the owner that were seen. So a worker that finishes first has the last word, and one that
finishes later finds the row unlocked and overwrites what was done here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables import timestamps
from recovery.backends.job_tables.queries import TableContext
from recovery.backends.job_tables.rows import TIMES, RowSnapshot
from recovery.config import Engine
from recovery.domain.actions.types import Outcome, ScriptOutcome
from recovery.domain.jobs import JobState

CHUNK = 100  # rows in one transaction: some 20 ms, in which their workers wait
GONE = "There is no such row (any more)."
BUSY = "Another session is changing this row. Try again in a moment."
MOVED = "It changed during the action."

_SAME = {Engine.POSTGRESQL: "IS NOT DISTINCT FROM", Engine.MYSQL: "<=>", Engine.SQLITE: "IS"}
_COMPARED = ("attempts", "owner")  # beside the state; times are looked at under the lock


class RowEffect(Enum):
    """State that a row gets."""

    REQUEUED = "requeued"
    FAILED = "failed"
    RETRIED = "retried"

    @property
    def state(self) -> JobState:
        return JobState.FAILED if self is RowEffect.FAILED else JobState.WAITING


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """Update of a row. `error` is written beside it. `counts`: as one more attempt. `anew`: attempts begin again."""

    effect: RowEffect
    error: str = ""
    counts: bool = True
    anew: bool = False
    why: str = ""  # told to the operator


@dataclass(frozen=True, slots=True)
class RowRefusal:
    why: str
    outcome: Outcome = Outcome.REFUSED


Decide = Callable[[RowSnapshot], RowUpdate | RowRefusal]


def update_rows(context: TableContext, ids: Sequence[str], decide: Decide) -> tuple[ScriptOutcome, ...]:
    """Updates rows; one answer a row, in their order. Raises StoreError: nothing was done, or it is unknown what."""
    if len(ids) > CHUNK:
        raise ValueError(f"at most {CHUNK} rows at once, not {len(ids)}")
    with context.session.transaction():
        looks = job_tables_queries.by_ids(context, ids, locked=_lock(context))
        decided = {id: _done(context, look, decide(look)) for id, look in looks.items()}
    lost = [id for id in ids if id not in decided]
    there = job_tables_queries.by_ids(context, lost) if lost else {}
    absent = {id: _absent(id, there.get(id)) for id in lost}
    return tuple((decided | absent)[id] for id in ids)


def _lock(context: TableContext) -> str:
    """Returns the clause that locks rows. SQLite has its lock from the beginning of the transaction."""
    if context.session.engine is Engine.SQLITE:
        return ""
    can_skip = context.session.connection.features.has_select_for_update_skip_locked
    return " FOR UPDATE SKIP LOCKED" if can_skip else " FOR UPDATE"


def _absent(id: str, look: RowSnapshot | None) -> ScriptOutcome:
    if look is None:
        return ScriptOutcome(id, Outcome.MISSING, GONE)
    return ScriptOutcome(id, Outcome.REFUSED, BUSY, look.row.state)


def _done(context: TableContext, look: RowSnapshot, decided: RowUpdate | RowRefusal) -> ScriptOutcome:
    id = look.row.id
    if isinstance(decided, RowRefusal):
        return ScriptOutcome(id, decided.outcome, decided.why, look.row.state)
    if not _update(context, look, decided):
        return ScriptOutcome(id, Outcome.REFUSED, MOVED)
    return ScriptOutcome(id, Outcome.DONE, decided.why, decided.effect.state)


def _update(context: TableContext, look: RowSnapshot, move: RowUpdate) -> bool:
    assigned = _assigned(context, look, move)
    conditions, seen = _as_seen(context, look)
    statement = f"UPDATE {context.place} SET {', '.join(assigned)} WHERE {conditions}"
    return context.session.change(statement, (*assigned.values(), *seen)) == 1


def _as_seen(context: TableContext, look: RowSnapshot) -> tuple[str, tuple[Any, ...]]:
    """Returns the condition that a row is as seen: a finished one is not, unless the act is about finished rows."""
    same = _SAME[context.session.engine]
    compared = [role for role in _COMPARED if context.column(role)]
    parts = [f"{context.column('id')} = %s", f"{context.column('state')} = %s"]
    parts += [f"{context.column(role)} {same} %s" for role in compared]
    return " AND ".join(parts), (look.id, look.raw["state"], *(look.raw[role] for role in compared))


def _assigned(context: TableContext, look: RowSnapshot, move: RowUpdate) -> dict[str, Any]:
    """Returns `column = %s` → its value, for every column that there is and that may be so."""
    shape, columns = context.shape, context.shape.table.columns
    values: dict[str, Any] = {"state": shape.states(shape.table.states.of(move.effect.state))[0]}
    if columns.attempts:
        values["attempts"] = 0 if move.anew else look.row.attempts + move.counts
    values |= _ENDED[move.effect](move)
    if move.effect is RowEffect.FAILED and columns.finished_at:
        values["finished_at"] = _now(context, look, columns.finished_at)
    return {
        f"{context.column(role)} = %s": value
        for role, value in values.items()
        if context.column(role) and (value is not None or shape.columns[getattr(columns, role)].may_be_null)
    }


def _requeued(move: RowUpdate) -> Mapping[str, Any]:
    return {**_freed(move), "started_at": None, "owner": None}


def _retried(move: RowUpdate) -> Mapping[str, Any]:
    return {"last_error": None, "finished_at": None, "started_at": None, "owner": None, "lease_until": None,
            "heartbeat": None}  # fmt: skip


def _freed(move: RowUpdate) -> Mapping[str, Any]:
    return {"last_error": move.error, "lease_until": None, "heartbeat": None}


# A failed row keeps its owner and its start: they say whose it was.
_ENDED = {RowEffect.REQUEUED: _requeued, RowEffect.FAILED: _freed, RowEffect.RETRIED: _retried}


def _now(context: TableContext, look: RowSnapshot, column: str) -> Any:
    shape = context.shape
    beside = (look.raw[role] for role in TIMES if role in look.raw)
    return timestamps.write_now(look.now, shape.kind(column), shape.table.timezone, beside)
