"""Operator of job tables: requeue, fail and retry, each a guarded UPDATE; other actions do not fit rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.backends.base import Target
from recovery.backends.job_tables import queries as job_tables_queries
from recovery.backends.job_tables import updates
from recovery.backends.job_tables.rows import RowSnapshot, held_until
from recovery.backends.job_tables.updates import RowEffect, RowRefusal, RowUpdate
from recovery.config import JobTable
from recovery.domain.actions.types import (
    Action,
    ActionEffects,
    ActionOptions,
    ExpectedJob,
    Outcome,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion
from recovery.domain.time_units import age
from recovery.errors import StatementRefused, Unsupported
from recovery.stores.sql.sql_client import SqlClient, as_sql_client

ORPHANED = "orphaned by worker restart"
BY_HAND = "failed by an operator"

_OWN = "Rows belong to their application: delete them there."
_REFUSED: Mapping[Action, str] = {
    Action.RELEASE: "A row has no lock to release: when its worker is gone, requeue it.",
    Action.PROMOTE: "The application of a row decides when it is due.",
    Action.CANCEL: "No worker can be asked to stop: how a worker of a table listens is unknown.",
    Action.REMOVE: _OWN,
    Action.CLEAN: _OWN,
    Action.DRAIN: _OWN,
    Action.RESTORE: "Nothing is removed from a table, so nothing can be restored.",
    Action.PAUSE: "A table cannot be paused: its workers take rows on their own.",
    Action.RESUME: "A table cannot be paused: its workers take rows on their own.",
}


class TableOperator:
    """Operator of job tables. Stateless: the table is the wire's, by the queue's base."""

    def refusals(self, flavour: LibraryVersion) -> Mapping[Action, str]:
        if flavour.read_only:
            return dict.fromkeys(Action, flavour.read_only)
        return _REFUSED

    def chunk(self, act: Action) -> int:
        return updates.CHUNK

    def effects(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions
    ) -> Mapping[str, ActionEffects]:
        return {}

    def on_jobs(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        if reason := self.refusals(target.flavour).get(act):
            raise Unsupported(reason)
        wire = as_sql_client(target.wire)
        raise_if_read_only(wire)
        if not jobs:
            return ()
        seen = {one.id: one for one in jobs}
        decide = _DECIDE[act]
        table = wire.table(target.ref.base)
        with job_tables_queries.table_context(wire, target.ref) as context:
            try:
                return updates.update_rows(
                    context, list(seen), lambda look: decide(table, seen[look.row.id], look, options)
                )
            except StatementRefused as error:
                # The transaction was rolled back as a whole. No other rows are to blame, so each gets the same answer.
                return tuple(
                    ScriptOutcome(id, Outcome.REFUSED, f"The database refused it: {error.reason}") for id in seen
                )

    def on_queue(self, act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
        raise Unsupported(_REFUSED.get(act, f"{act} does not apply to a whole table."))

    def take_away(self, act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
        raise Unsupported(_OWN)

    def put_back(self, target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
        raise Unsupported(_REFUSED[Action.RESTORE])

    def fence(self, target: Target) -> None:
        """Does nothing: a row is changed only as it is then, and what another scheduler did is seen in it."""


def raise_if_read_only(wire: SqlClient) -> None:
    if wire.database.read_only:
        raise Unsupported("The database is configured to be read only.")


def orphan_update(look: RowSnapshot, error: str, *, counts: bool = True) -> RowUpdate:
    """Returns the update back to wait, or to failed when this was its last attempt."""
    row = look.row
    made = row.attempts + counts
    if "attempts" in look.raw and made >= row.attempts_limit:
        return RowUpdate(
            RowEffect.FAILED, error, counts, why=f"Its {row.attempts_limit:,} attempts are used up: it failed."
        )
    return RowUpdate(RowEffect.REQUEUED, error, counts)


def _requeue(table: JobTable, seen: ExpectedJob, look: RowSnapshot, options: ActionOptions) -> RowUpdate | RowRefusal:
    refused = _moved(seen, look) or _in_work(table, look, options)
    return refused or orphan_update(look, options.message or ORPHANED, counts=options.counts_as_stall)


def _fail(table: JobTable, seen: ExpectedJob, look: RowSnapshot, options: ActionOptions) -> RowUpdate | RowRefusal:
    refused = _moved(seen, look) or _in_work(table, look, options)
    return refused or RowUpdate(RowEffect.FAILED, options.message or BY_HAND)


def _retry(table: JobTable, seen: ExpectedJob, look: RowSnapshot, options: ActionOptions) -> RowUpdate | RowRefusal:
    """Retries a finished row only: it is what this act is for."""
    if not look.row.state.is_finished:
        return _is_now(look)
    return _moved(seen, look) or RowUpdate(RowEffect.RETRIED, anew=options.reset_attempts, counts=False)


_DECIDE: Mapping[Action, Callable[[JobTable, ExpectedJob, RowSnapshot, ActionOptions], RowUpdate | RowRefusal]] = {
    Action.REQUEUE: _requeue,
    Action.FAIL: _fail,
    Action.RETRY: _retry,
}


def _moved(seen: ExpectedJob, look: RowSnapshot) -> RowRefusal | None:
    row = look.row
    if row.state is not seen.state:
        return _is_now(look)
    if (row.processed_at, row.attempts) != (seen.processed_at, seen.attempts):
        return RowRefusal("It was started again since it was shown.")
    return None


def _in_work(table: JobTable, look: RowSnapshot, options: ActionOptions) -> RowRefusal | None:
    """Refuses a row that is not running, or of which nothing says that its worker is gone."""
    if look.row.state is not JobState.ACTIVE:
        return _is_now(look)
    if options.force or options.at_start:
        return None
    until, by = held_until(table, look.row)
    if until is None:
        return RowRefusal("It is unknown whether a worker still runs it. This needs force.")
    if until > look.now:
        return RowRefusal(f"Its {by} is valid for another {age(until - look.now)}: a worker may still run it.")
    return None


def _is_now(look: RowSnapshot) -> RowRefusal:
    return RowRefusal(f"It is {look.row.state.value} now.")
