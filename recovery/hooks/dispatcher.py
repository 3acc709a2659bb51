"""Carries out recovery hooks from the table of calls: new calls within a second, failed ones again every 15 minutes.

Best effort: a call that fails is logged and kept, one whose job has moved on is dropped. A row of the application is
changed only while its job is known to be lost or put back, and only from an active stage, so that a second or a late
call changes nothing.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from django.db import Error

from recovery.config import Engine
from recovery.domain.hooks import types as hooks_types
from recovery.domain.hooks.types import Hook, HookPayload, HookRowUpdate, StageChoice
from recovery.domain.identifiers import QueueRef, printable, unslug
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.domain.time_units import DAY, MINUTE
from recovery.errors import Missing, UnstallError
from recovery.hooks.function_runner import CALL_TIMEOUT, HookFailed, HookFunctionRunner
from recovery.models import HookCall
from recovery.reads.queues import job_lists, payloads
from recovery.reads.queues.job_lists import Queue
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.sql import sql_client
from recovery.stores.sql.sql_client import SqlSession

# -- row update
# Sets the stage of the application's own row after its job, only while the row has the stage of a running job.


Condition = tuple[str, tuple[str, ...]]  # in SQL, with its parameters


def update_row(registry: ConnectionRegistry, rule: HookRowUpdate, row: str | int, stage: str) -> str:
    """Updates the row of one job; returns what was changed, "" for nothing. Raises StoreError, Failed.

    One statement for each choice until one finds the row, all in one transaction.
    """
    with sql_client.as_sql_client(registry.wire(rule.database)).session() as session, session.transaction():
        for to, condition in _tries(session, rule, stage):
            changed = _set(session, rule, row, to, condition)
            if changed > 1:
                raise HookFailed(f"{changed:,} rows of {rule.table} have this {rule.id}: no row was changed.")
            if changed:
                return f"{rule.table} {printable(str(row))} is {to} now."
    return ""


def _tries(session: SqlSession, rule: HookRowUpdate, stage: str) -> Iterator[tuple[str, Condition]]:
    """Yields stages with their conditions, in the order to be tried; conditions are only for a job that will run."""
    if stage == rule.to:
        for choice in rule.choices:
            yield choice.to, _condition(session, choice)
    yield stage, ("", ())


def _condition(session: SqlSession, choice: StageChoice) -> Condition:
    column = session.quoted(choice.column)
    if choice.equals is not None:
        return f" AND {column} = %s", (choice.equals,)
    return f" AND {column} IS {'NOT ' if choice.is_set else ''}NULL", ()


def _set(session: SqlSession, rule: HookRowUpdate, row: str | int, to: str, condition: Condition) -> int:
    """Runs the UPDATE; returns how many rows changed. Values go as text, which databases compare with any column."""
    column, id = session.quoted(rule.stage), session.quoted(rule.id)
    extra, parameters = condition
    # MySQL takes "42 and more" for 42.
    exact = f" AND CAST({id} AS CHAR) = %s" if session.engine is Engine.MYSQL else ""
    active = ", ".join(["%s"] * len(rule.active))
    statement = (
        f"UPDATE {session.quoted(rule.table)} SET {column} = %s "  # noqa: S608 -- names are quoted, values are parameters
        f"WHERE {id} = %s{exact} AND {column} IN ({active}){extra}"
    )
    mine = str(row)
    return session.change(statement, [to, mine, *([mine] if exact else []), *rule.active, *parameters])


# -- dispatcher


log = logging.getLogger(__name__)

EVERY = 1.0  # seconds between two runs
AT_ONCE = 200  # calls of one run
LOOKED_UP = 50  # jobs read at once whose state is not known
RUN = 5.0  # seconds of a run
AGAIN = 15 * MINUTE  # ms until a call that failed is tried again
GIVE_UP = 3 * DAY  # ms after the event
_TROUBLE = 500  # characters


@dataclass(slots=True)
class _Batch:
    """Calls about jobs of one queue, with the rows and the data of these jobs."""

    queue: Queue
    calls: Sequence[HookCall]
    rows: Mapping[str, JobRow | None]
    data: dict[str, bytes] = field(default_factory=dict)


class HookDispatcher:
    """Carries out hook calls, for one thread at a time. `may`: when the leadership is lost, the new leader goes on."""

    def __init__(
        self, registry: ConnectionRegistry, may: May = always_leader, *, patience: float = CALL_TIMEOUT
    ) -> None:
        self._hooks = {hook.name: hook for hook in registry.config.hooks}
        self._registry = registry
        self._may = may
        self._entrances = HookFunctionRunner(patience)
        self._told: dict[str, str] = {}  # hook → its error as it was logged last

    def run(self, now: int) -> int:
        """Carries out new calls; returns how many were done."""
        return self._run(HookCall.objects.filter(tries=0, due_at__lte=now), now) if self._hooks else 0

    def again(self, now: int) -> int:
        """Retries failed calls that are due, and gives up those that are too old; returns how many were done."""
        for call in HookCall.objects.filter(at__lt=now - GIVE_UP)[:AT_ONCE]:
            why = call.trouble or "it was not called in time"
            log.error("hook %s: gave up on job %s of %s: %s", call.hook, call.job, call.base, why)
            call.delete()
        return self._run(HookCall.objects.filter(tries__gt=0, due_at__lte=now), now)

    def _run(self, due: Any, now: int) -> int:
        """Carries out calls that are due, except those whose function is still busy with an earlier one."""
        ends = time.monotonic() + RUN
        busy = [name for name, hook in self._hooks.items() if self._entrances.is_busy(hook.call)]
        calls = sorted(due.exclude(hook__in=busy).order_by("due_at", "pk")[:AT_ONCE], key=_place)
        done = 0
        for (deployment, base), group in groupby(calls, key=_place):
            mine = list(group)
            for start in range(0, len(mine), LOOKED_UP):
                if not self._may() or time.monotonic() > ends:
                    return done
                done += self._queue(QueueRef(deployment, unslug(base)), mine[start : start + LOOKED_UP], now)
        return done

    def _queue(self, ref: QueueRef, calls: Sequence[HookCall], now: int) -> int:
        """Carries out the calls of one queue; if it cannot be read, only its own calls are delayed."""
        try:
            batch = _look(ref, calls)
        except Missing:
            log.info("%s is gone, and %d pending hook calls with it", ref, len(calls))
            return _forget(calls)
        except UnstallError as error:
            for call in calls:
                self._fail(call, str(error), now)
            return 0
        return sum(self._call(batch, call, now) for call in calls)

    def _call(self, batch: _Batch, call: HookCall, now: int) -> int:
        hook = self._hooks.get(call.hook)
        if hook is None:
            return _forget([call])  # it is not configured any more
        try:
            said = self._carry_out(hook, batch, call)
        except (HookFailed, UnstallError, Error) as error:
            self._fail(call, f"{error}" or type(error).__name__, now)
            return 0
        if said is None:
            return 0
        if said:
            log.info("hook %s: %s", hook.name, said)
        self._told.pop(hook.name, None)
        return _forget([call])

    def _carry_out(self, hook: Hook, batch: _Batch, call: HookCall) -> str | None:
        """Carries out one call; returns what was done, "" for nothing, None if its function is busy. Raises Failed."""
        id, told = unslug(call.job), _told(call)
        row = batch.rows.get(id)
        if hook.follow is None:
            what = _facts(batch, call, id, row, told.get("act", ""))
            return "" if self._entrances.enter(hook.call, what) else None
        stage = hooks_types.stage_for(hook.follow, row, told.get("act", ""))
        if not stage:
            return ""
        known = told.get("row")
        mine = known if known is not None else hooks_types.row_id(hook.follow, id, batch.data.get(id))
        if mine is None:
            return ""
        return update_row(self._registry, hook.follow, mine, stage)

    def _fail(self, call: HookCall, trouble: str, now: int) -> None:
        if self._told.get(call.hook) != trouble:
            log.warning("hook %s: %s", call.hook, trouble)
        self._told[call.hook] = trouble
        with suppress(Error):
            HookCall.objects.filter(pk=call.pk).update(
                tries=call.tries + 1, due_at=now + AGAIN, trouble=trouble[:_TROUBLE]
            )


def _look(ref: QueueRef, calls: Sequence[HookCall]) -> _Batch:
    """Reads the queue, and the current rows and data of the jobs of these calls."""
    queue = job_lists.locate(ref, None)
    ids = list(dict.fromkeys(unslug(call.job) for call in calls))
    rows = queue.reader.rows(queue.wire, ref, [(id, JobState.UNKNOWN) for id in ids])
    known = dict(zip(ids, rows, strict=True))
    return _Batch(queue, calls, known, payloads.data_of(queue, [id for id, row in known.items() if row is not None]))


def _facts(batch: _Batch, call: HookCall, id: str, row: JobRow | None, act: str) -> HookPayload:
    is_here = row is not None and not row.missing
    return HookPayload(
        event=call.event,
        deployment=batch.queue.ref.deployment,
        queue=batch.queue.ref.base,
        job=id,
        at=call.at,
        act=act,
        state=row.state.value if row and is_here else "",
        name=row.name if row and is_here else "",
        data=hooks_types.parse_job_data(batch.data.get(id)),
    )


def _told(call: HookCall) -> dict[str, Any]:
    found = hooks_types.parse_job_data(call.told.encode())
    return found if isinstance(found, dict) else {}


def _place(call: HookCall) -> tuple[str, str]:
    return call.deployment, call.base


def _forget(calls: Sequence[HookCall]) -> int:
    """Deletes calls that are done; returns how many. If the database fails they are repeated, which does no harm."""
    with suppress(Error):
        HookCall.objects.filter(pk__in=[call.pk for call in calls]).delete()
    return len(calls)
