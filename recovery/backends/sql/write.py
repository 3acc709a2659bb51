"""Operator of job tables: requeue, fail and retry, each a guarded UPDATE; other actions do not fit rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.backends.base import Target
from recovery.backends.sql import select, swap
from recovery.backends.sql.rows import Look, held_until
from recovery.backends.sql.swap import Effect, Move, Refusal
from recovery.config import Table
from recovery.connections.sql import SqlWire, of
from recovery.domain.acting import Act, ActionEffects, Done, Kept, Options, Outcome, Removed, Seen
from recovery.domain.ages import age
from recovery.domain.counts import Flavour
from recovery.domain.jobs import State
from recovery.errors import StatementRefused, Unsupported

ORPHANED = "orphaned by worker restart"
BY_HAND = "failed by an operator"

_OWN = "Rows belong to their application: delete them there."
_REFUSED: Mapping[Act, str] = {
    Act.RELEASE: "A row has no lock to release: when its worker is gone, requeue it.",
    Act.PROMOTE: "The application of a row decides when it is due.",
    Act.CANCEL: "No worker can be asked to stop: how a worker of a table listens is unknown.",
    Act.REMOVE: _OWN,
    Act.CLEAN: _OWN,
    Act.DRAIN: _OWN,
    Act.RESTORE: "Nothing is removed from a table, so nothing can be restored.",
    Act.PAUSE: "A table cannot be paused: its workers take rows on their own.",
    Act.RESUME: "A table cannot be paused: its workers take rows on their own.",
}


class TableOperator:
    """Operator of job tables. Stateless: the table is the wire's, by the queue's base."""

    def refusals(self, flavour: Flavour) -> Mapping[Act, str]:
        if flavour.read_only:
            return dict.fromkeys(Act, flavour.read_only)
        return _REFUSED

    def chunk(self, act: Act) -> int:
        return swap.CHUNK

    def effects(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options) -> Mapping[str, ActionEffects]:
        return {}

    def on_jobs(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
        if reason := self.refusals(target.flavour).get(act):
            raise Unsupported(reason)
        wire = of(target.wire)
        insist_on_writing(wire)
        if not jobs:
            return ()
        seen = {one.id: one for one in jobs}
        decide = _DECIDE[act]
        table = wire.table(target.ref.base)
        with select.scene(wire, target.ref) as scene:
            try:
                return swap.swap(scene, list(seen), lambda look: decide(table, seen[look.row.id], look, options))
            except StatementRefused as error:
                # The transaction was rolled back as a whole. No other rows are to blame, so each gets the same answer.
                return tuple(Done(id, Outcome.REFUSED, f"The database refused it: {error.reason}") for id in seen)

    def on_queue(self, act: Act, target: Target, options: Options, now: int) -> Done:
        raise Unsupported(_REFUSED.get(act, f"{act} does not apply to a whole table."))

    def take_away(self, act: Act, target: Target, options: Options, now: int, *, budget: int) -> Removed:
        raise Unsupported(_OWN)

    def put_back(self, target: Target, kept: Kept, now: int) -> Done:
        raise Unsupported(_REFUSED[Act.RESTORE])

    def fence(self, target: Target) -> None:
        """Does nothing: a row is changed only as it is then, and what another scheduler did is seen in it."""


def insist_on_writing(wire: SqlWire) -> None:
    if wire.database.read_only:
        raise Unsupported("The database is configured to be read only.")


def orphaned(look: Look, error: str, *, counts: bool = True) -> Move:
    """Returns the update back to wait, or to failed when this was its last attempt."""
    row = look.row
    made = row.attempts + counts
    if "attempts" in look.raw and made >= row.attempts_limit:
        return Move(Effect.FAILED, error, counts, why=f"Its {row.attempts_limit:,} attempts are used up: it failed.")
    return Move(Effect.REQUEUED, error, counts)


def _requeue(table: Table, seen: Seen, look: Look, options: Options) -> Move | Refusal:
    refused = _moved(seen, look) or _in_work(table, look, options)
    return refused or orphaned(look, options.message or ORPHANED, counts=options.counts_as_stall)


def _fail(table: Table, seen: Seen, look: Look, options: Options) -> Move | Refusal:
    refused = _moved(seen, look) or _in_work(table, look, options)
    return refused or Move(Effect.FAILED, options.message or BY_HAND)


def _retry(table: Table, seen: Seen, look: Look, options: Options) -> Move | Refusal:
    """Retries a finished row only: it is what this act is for."""
    if not look.row.state.is_finished:
        return _is_now(look)
    return _moved(seen, look) or Move(Effect.RETRIED, anew=options.reset_attempts, counts=False)


_DECIDE: Mapping[Act, Callable[[Table, Seen, Look, Options], Move | Refusal]] = {
    Act.REQUEUE: _requeue,
    Act.FAIL: _fail,
    Act.RETRY: _retry,
}


def _moved(seen: Seen, look: Look) -> Refusal | None:
    row = look.row
    if row.state is not seen.state:
        return _is_now(look)
    if (row.processed_at, row.attempts) != (seen.processed_at, seen.attempts):
        return Refusal("It was started again since it was shown.")
    return None


def _in_work(table: Table, look: Look, options: Options) -> Refusal | None:
    """Refuses a row that is not running, or of which nothing says that its worker is gone."""
    if look.row.state is not State.ACTIVE:
        return _is_now(look)
    if options.force or options.at_start:
        return None
    until, by = held_until(table, look.row)
    if until is None:
        return Refusal("It is unknown whether a worker still runs it. This needs force.")
    if until > look.now:
        return Refusal(f"Its {by} is valid for another {age(until - look.now)}: a worker may still run it.")
    return None


def _is_now(look: Look) -> Refusal:
    return Refusal(f"It is {look.row.state.value} now.")
