"""Looks at what is to be changed: the queue and its operator, and each job as it is now, judged.

Every action begins here, and a job is looked at again right before it: what was shown may be minutes old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recovery import shared_clock
from recovery.actions.catalog import ENTRIES
from recovery.actions.operators import guard_operator, operator, refusals
from recovery.actions.rules import ActionCandidate, is_proven, judge
from recovery.backends.base import QueueOperator, Target
from recovery.domain.actions.types import (
    NO_EFFECTS,
    Action,
    ActionCommand,
    ActionEffects,
    ActionOptions,
    ActionPrecheck,
    ExpectedJob,
    Right,
)
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.n8n.action_context import ExecutionActionContext
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.queues.types import QueueLibrary, Snapshot
from recovery.domain.stuck.types import Verdict
from recovery.errors import ConfigError, StoreError, Unsupported
from recovery.n8n import action_context, rescue_context
from recovery.reads.queues import job_lists, snapshot_store
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import windows

STALE_MS = 30_000  # an older snapshot does not know the workers of now, and is not used
LOOKED_UP = 50  # jobs of unknown state that are looked for at once

# A verdict tells which worker holds a job, and whether it can run: other actions do not need it.
_JUDGED = frozenset(
    {Action.REQUEUE, Action.FAIL, Action.RELEASE, Action.CANCEL, Action.REMOVE, Action.RETRY, Action.PROMOTE}
)

_ON_OTHERS = frozenset({Action.REMOVE, Action.FAIL})  # acts that change children and parents

# Where an act most likely leaves a job: searched first.
_PUT = {
    Action.REQUEUE: JobState.WAITING,
    Action.FAIL: JobState.WAITING,
    Action.RELEASE: JobState.ACTIVE,
    Action.RETRY: JobState.WAITING,
    Action.PROMOTE: JobState.WAITING,
}


@dataclass(frozen=True, slots=True)
class ActionContext:
    """Context of an action on a queue that may be changed. The wire of `target` is asked even after a failure."""

    queue: Queue
    target: Target
    operator: QueueOperator
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class PrecheckedJob:
    """A job with its judgement, and the row and verdict that it was judged by."""

    judgement: ActionPrecheck
    row: JobRow | None
    verdict: Verdict | None
    standing: ExecutionActionContext | None = (
        None  # of its execution, when it is a job of n8n's or the execution itself
    )


def build_context(ref: QueueRef, act: Action, epoch: int | None = None, installation: str = "") -> ActionContext:
    """Returns an action's context. Raises Missing, StoreError, and Unsupported if nothing may be changed so.

    `epoch`: of the scheduler that acts, and whose it is; under None no fence is asked.
    """
    deployment = registry().config.deployment(ref.deployment)
    if deployment.read_only:
        raise Unsupported(f"The deployment {printable(deployment.name)} is configured to be read only.")
    snapshot = _newest(now())
    queue = job_lists.with_verified_library(job_lists.locate(ref, snapshot), snapshot)
    if reason := refusals(queue.flavour).get(act):
        raise Unsupported(reason)
    able = guard_operator(operator(queue.flavour), ref, queue.flavour, registry().config)
    target = Target(registry().wire(ref.deployment), ref, queue.flavour, epoch, installation)
    return ActionContext(queue, target, able, snapshot)


def check_jobs(
    order: ActionCommand,
    context: ActionContext,
    jobs: Sequence[ExpectedJob],
    *,
    insists: bool = False,
    rows: Sequence[JobRow | None] | None = None,
) -> tuple[PrecheckedJob, ...]:
    """Looks at each job afresh, and judges whether the action may be done to it. `insists`: the caller is about to do
    it; raises NotRecorded when what has to be known of them cannot be read. `rows`: the jobs, if the caller has just
    read them.
    """
    if rows is None:
        rows = context.queue.rows([(seen.id, seen.state) for seen in jobs], by_script=order.epoch is None)
    return check_rows(order, context, jobs, rows, verdicts(order.act, context, rows, insists=insists))


def check_rows(
    order: ActionCommand,
    context: ActionContext,
    jobs: Sequence[ExpectedJob],
    rows: Sequence[JobRow | None],
    verdicts: Mapping[str, Verdict],
) -> tuple[PrecheckedJob, ...]:
    """Judges jobs whose rows were read just now."""
    standings = _standings(order.act, context, rows)
    effects = _effects(order, context, rows)
    right = _lacking(order)
    cases = (
        ActionCandidate(
            seen.id, row, verdicts.get(seen.id), seen, standings.get(seen.id), effects.get(seen.id, NO_EFFECTS), right
        )
        for seen, row in zip(jobs, rows, strict=True)
    )
    return tuple(_judged(order, context, case) for case in cases)


def with_follow_up_reads(order: ActionCommand, context: ActionContext, jobs: Sequence[ExpectedJob]) -> ActionContext:
    """Returns the context with a read of the jobs behind each script: how it left them, without another round trip.

    Not for scanners: of one whose user may run no script the store is to note one refusal, not three.
    """
    if order.act not in _PUT or order.epoch is not None:
        return context
    place = JobState.WAITING if order.options.requeue else _PUT[order.act]
    wanted = [(seen.id, place) for seen in jobs]
    following = context.queue.reader.following(context.target.wire, context.queue.ref, wanted)
    return replace(context, target=replace(context.target, following=following))


def options(order: ActionCommand, judged: Sequence[PrecheckedJob]) -> ActionOptions:
    """Returns the options as ordered, with what only a look tells: that these orphans were proven by two sightings."""
    allowed = [one for one in judged if one.judgement.is_allowed]
    is_late = bool(allowed) and all(is_proven(one.verdict) for one in allowed)
    affected = {str(other.job) for one in allowed for other in one.judgement.effects.affected}
    shown = order.options.affected
    return replace(order.options, is_late=is_late, affected=frozenset(affected if shown is None else affected & shown))


def _effects(
    order: ActionCommand, context: ActionContext, rows: Sequence[JobRow | None]
) -> Mapping[str, ActionEffects]:
    """Reads the effects on parents and children, of jobs that have some: most have none, and their row says so."""
    if order.act not in _ON_OTHERS:
        return {}
    related = [row for row in rows if row is not None and (row.parent or order.options.children)]
    found: dict[str, ActionEffects] = {}
    size = context.operator.chunk(order.act)
    for start in range(0, len(related), size):
        part = [ExpectedJob.of(row) for row in related[start : start + size]]
        found |= context.operator.effects(order.act, context.target, part, order.options)
    return found


def _lacking(order: ActionCommand) -> Right | None:
    """Returns the right to act on more than one job, if the actor lacks it."""
    right = ENTRIES[order.act].right(many=True)
    return None if order.actor.may(right) else right


def current_jobs(ref: QueueRef, ids: Sequence[str]) -> tuple[ExpectedJob, ...]:
    """Returns these jobs as they are now, for callers that have only their ids. One that is gone is in no state."""
    queue = job_lists.locate(ref, _newest(now()))
    found: list[ExpectedJob] = []
    for start in range(0, len(ids), LOOKED_UP):
        part = ids[start : start + LOOKED_UP]
        rows = queue.rows([(id, JobState.UNKNOWN) for id in part], by_script=True)
        found += [
            ExpectedJob.of(row) if row else ExpectedJob(id, JobState.UNKNOWN)
            for id, row in zip(part, rows, strict=True)
        ]
    return tuple(found)


def now() -> int:
    return shared_clock.now()


def _judged(order: ActionCommand, context: ActionContext, case: ActionCandidate) -> PrecheckedJob:
    judgement = judge(order.act, order.queue, context.queue.flavour, order.options, case)
    return PrecheckedJob(judgement, case.row, case.verdict, case.standing)


def _standings(
    act: Action, context: ActionContext, rows: Sequence[JobRow | None]
) -> Mapping[str, ExecutionActionContext]:
    """Returns what n8n's database says of the jobs that exist; nothing of queues that are not n8n's."""
    queue, ids = context.queue, [row.id for row in rows if row is not None]
    if queue.flavour.library is QueueLibrary.N8N:
        found = action_context.contexts_of_executions(
            registry(), queue.ref, ids, context.snapshot, now(), is_rerun=act is Action.RETRY_EXECUTION
        )
        if act is not Action.RESCUE:
            return found
        return rescue_context.add_rescue_contexts(registry(), queue.ref, found, context.snapshot, now())
    is_its = registry().config.n8n_of(queue.ref) is not None or is_n8n(queue.ref, queue.flavour)
    return (
        action_context.contexts_of_jobs(registry(), queue, ids)
        if is_its and queue.flavour.library is QueueLibrary.BULL
        else {}
    )


def verdicts(
    act: Action, context: ActionContext, rows: Sequence[JobRow | None], *, insists: bool
) -> dict[str, Verdict]:
    """Returns the verdicts that the action asks for. Raises NotRecorded as `judged` does."""
    there = tuple(row for row in rows if row is not None)
    if act not in _JUDGED or not there:
        return {}
    found = dict(stuck_queries.verdicts_of_rows(context.queue, there, context.snapshot, now(), insists=insists))
    # No worker holds a failed job; its data is checked all the same.
    return found | stuck_queries.malformed(context.queue, there) if act is Action.RETRY else found


def _newest(now: int) -> Snapshot | None:
    """Returns the newest snapshot, or None if there is no fresh one: then the queue itself is asked what it is."""
    try:
        found = windows.get(("snapshot",), lambda: snapshot_store.fetch(registry().state()))
    except (ConfigError, StoreError):
        return None
    return found if found is not None and now - found.taken_at <= STALE_MS else None
