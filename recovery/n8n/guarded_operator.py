"""Guards a job of n8n's right before it is failed or run again: its execution is read once more, and its row held.

Between that look and the script no process can end the execution: its row is locked, where our user may lock it. An
execution that has ended is left alone. After a failure the result says what n8n made of it, because its main process
may have been restarted since it gave the job out, and then it no longer listens.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace

from recovery.backends.base import QueueOperator, Target
from recovery.backends.bull import job_fields
from recovery.config import N8nInstallation
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
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.stalled_grace import STALLED_GRACE, error_after
from recovery.domain.queues.types import LibraryVersion
from recovery.domain.time_units import SECOND
from recovery.errors import StoreError, Unsupported
from recovery.n8n import action_targets, instance_store
from recovery.n8n.action_rules import refusal_reason
from recovery.n8n.database import executions, row_lock
from recovery.n8n.database.schema import N8nTables
from recovery.stores.redis.cluster import ClusterClient
from recovery.stores.registry import registry
from recovery.stores.sql.sql_client import SqlClient

FOLLOWED = 5.0  # seconds that we wait for n8n's reaction to a failure: its main process takes one
_FOLLOWED_JOBS = 10  # jobs at most: of more at once no operator reads each answer
_PAUSE = 0.1  # seconds between two looks
_GUARDED = frozenset({Action.FAIL, Action.REQUEUE, Action.RETRY})
_SILENT = "The status of its execution cannot be read from n8n's database: {why}"
_DEAF = (
    "n8n no longer waits for it: its main process was restarted after it added the job. Its execution stays as it is "
    "until it "
    "is marked as crashed."
)
_UNHEARD = "n8n did not react within {seconds:g} s: if its execution stays as it is, mark it as crashed."
_BEGUN = "Its execution has started since it was shown: every step that already ran would run twice."
_SLOW = (
    "n8n was notified. It checks for up to {grace} s whether the execution ends by itself, and sets it to error then: "
    "if it stays as it is for longer, mark it as crashed."
)
_PERHAPS_SLOW = (
    "n8n did not react within {seconds:g} s. n8n 2.41 and later set its execution to error after up to {grace} s: if "
    "it stays as it is for longer, mark it as crashed."
)
_HEARD = "n8n was notified, and sets its execution to error."


class GuardedOperator:
    """Bull's operator, for a queue of an n8n whose database is known."""

    def __init__(self, inner: QueueOperator, n8n: N8nInstallation) -> None:
        self._inner = inner
        self._n8n = n8n

    def refusals(self, flavour: LibraryVersion) -> Mapping[Action, str]:
        return self._inner.refusals(flavour)

    def chunk(self, act: Action) -> int:
        return self._inner.chunk(act)

    def effects(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions
    ) -> Mapping[str, ActionEffects]:
        return self._inner.effects(act, target, jobs, options)

    def on_jobs(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        is_rerun = act is Action.RELEASE and options.requeue
        if act not in _GUARDED and not is_rerun:
            return self._inner.on_jobs(act, target, jobs, options, now)
        named = _named(target, jobs)
        with ExitStack() as stack:
            refused = self._refused(stack, Action.REQUEUE if is_rerun else act, jobs, named, options)
            free = [job for job in jobs if job.id not in refused]
            done = self._done(act, target, free, options, now, held=named)
        told = tuple((refused | done)[job.id] for job in jobs)
        return self._followed(target, told, named) if act is Action.FAIL else told

    def on_queue(self, act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
        return self._inner.on_queue(act, target, options, now)

    def take_away(self, act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
        return self._inner.take_away(act, target, options, now, budget=budget)

    def put_back(self, target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
        return self._inner.put_back(target, kept, now)

    def fence(self, target: Target) -> None:
        self._inner.fence(target)

    def _done(
        self,
        act: Action,
        target: Target,
        jobs: Sequence[ExpectedJob],
        options: ActionOptions,
        now: int,
        *,
        held: Collection[str],
    ) -> dict[str, ScriptOutcome]:
        """Performs the action. Executions that are held and have not begun need no consent: it is their first run."""
        first = [job for job in jobs if act is Action.REQUEUE and not options.consent and job.id in held]
        rest = [job for job in jobs if job not in first]
        granted = replace(options, consent=True)
        found = [
            *(self._inner.on_jobs(act, target, first, granted, now) if first else ()),
            *(self._inner.on_jobs(act, target, rest, options, now) if rest else ()),
        ]
        return {one.id: one for one in found}

    def _refused(
        self,
        stack: ExitStack,
        act: Action,
        jobs: Sequence[ExpectedJob],
        named: Mapping[str, str],
        options: ActionOptions,
    ) -> dict[str, ScriptOutcome]:
        """Returns refusals of jobs whose execution has ended, or may have, or has begun without a consent to run it
        twice. The others' rows are held for as long as the stack lasts.
        """
        is_first_run = act is Action.REQUEUE and not options.consent  # allowed for that alone
        try:
            found = stack.enter_context(_quietly(row_lock.locked_executions(*self._database(), named.values())))
        except (StoreError, Unsupported) as error:
            is_forced = options.force and not is_first_run
            whys = {} if is_forced else dict.fromkeys(named, _SILENT.format(why=error))
        else:
            whys = {id: refusal_reason(act, execution, found.get(execution)) for id, execution in named.items()}
            if is_first_run:
                begun = {id: _BEGUN for id, execution in named.items() if _has_begun(found.get(execution))}
                whys = begun | {id: why for id, why in whys.items() if why}
        return {
            job.id: ScriptOutcome(job.id, Outcome.REFUSED, whys[job.id], job.state) for job in jobs if whys.get(job.id)
        }

    def _followed(
        self, target: Target, done: tuple[ScriptOutcome, ...], named: Mapping[str, str]
    ) -> tuple[ScriptOutcome, ...]:
        """Adds to the results of failed jobs what n8n made of them."""
        failed = [one for one in done if one.outcome is Outcome.DONE and one.id in named]
        if not failed or len(failed) > _FOLLOWED_JOBS:
            return done
        # In a cluster, subscribers at other nodes are not counted.
        deaf = [] if isinstance(target.wire, ClusterClient) else [one for one in failed if one.heard == 0]
        waited = {one.id: named[one.id] for one in failed if one not in deaf}
        told = {one.id: _DEAF for one in deaf} | self._became(waited)
        return tuple(replace(one, why=told[one.id]) if one.id in told else one for one in done)

    def _became(self, named: Mapping[str, str]) -> dict[str, str]:
        """Waits for what n8n makes of failed jobs, unless its version is known to take long: the page would hang."""
        told: dict[str, str] = {}
        after = error_after(instance_store.version(self._n8n.name))
        until = time.monotonic() + (0 if after else FOLLOWED)
        while named and time.monotonic() < until:
            try:
                found = executions.fetch_by_ids(*self._database(), named.values())
            except (StoreError, Unsupported):
                return told | dict.fromkeys(named, _HEARD)
            told |= {id: _said(found[one]) for id, one in named.items() if one in found and _has_ended(found[one])}
            named = {id: one for id, one in named.items() if id not in told}
            if named:
                time.sleep(_PAUSE)
        unheard = _PERHAPS_SLOW if after is None else _SLOW if after else _UNHEARD
        return told | dict.fromkeys(named, unheard.format(seconds=FOLLOWED, grace=STALLED_GRACE // SECOND))

    def _database(self) -> tuple[SqlClient, N8nTables]:
        return action_targets.database(registry(), self._n8n)


@contextmanager
def _quietly(held: AbstractContextManager[dict[str, Execution]]) -> Iterator[dict[str, Execution]]:
    """Ignores errors in releasing held rows: nothing is written while they are held, so it changes nothing."""
    found = held.__enter__()
    try:
        yield found
    finally:
        with suppress(StoreError):
            held.__exit__(None, None, None)


def _named(target: Target, jobs: Sequence[ExpectedJob]) -> dict[str, str]:
    found = job_fields.executions(target.wire, target.ref, [job.id for job in jobs])
    return {id: execution for id, execution in found.items() if action_targets.is_id(execution)}


def _has_begun(execution: Execution | None) -> bool:
    return execution is None or execution.has_begun


def _has_ended(execution: Execution) -> bool:
    return execution.status.is_terminal


def _said(execution: Execution) -> str:
    return f"Its execution {execution.id} is {execution.status} in n8n now."
