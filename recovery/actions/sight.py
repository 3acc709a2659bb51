"""Looks at what is to be changed: the queue and its operator, and each job as it is now, judged.

Every action begins here, and a job is looked at again right before it: what was shown may be minutes old.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from recovery import shared_clock
from recovery.actions.catalog import ENTRIES
from recovery.actions.judge import Case, is_proven, judge
from recovery.actions.operators import guarded, operator, refusals
from recovery.backends.base import QueueOperator, Target
from recovery.connections.registry import registry
from recovery.domain.acting import NO_EFFECTS, Act, ActionEffects, Judgement, Options, Order, Right, Seen
from recovery.domain.counts import Library, Snapshot
from recovery.domain.jobs import JobRow, State
from recovery.domain.n8n import is_n8n
from recovery.domain.n8n.standing import Standing
from recovery.domain.refs import QueueRef, shown
from recovery.domain.verdicts import Verdict
from recovery.errors import ConfigError, StoreError, Unsupported
from recovery.reads import lists, snapshots, stuck
from recovery.reads.lists import Queue
from recovery.reads.n8n import rescue_standing, standing
from recovery.reads.shared import windows

STALE_MS = 30_000  # an older snapshot does not know the workers of now, and is not used
LOOKED_UP = 50  # jobs of unknown state that are looked for at once

# A verdict tells which worker holds a job, and whether it can run: other actions do not need it.
_JUDGED = frozenset({Act.REQUEUE, Act.FAIL, Act.RELEASE, Act.CANCEL, Act.REMOVE, Act.RETRY, Act.PROMOTE})

_ON_OTHERS = frozenset({Act.REMOVE, Act.FAIL})  # acts that change children and parents

# Where an act most likely leaves a job: searched first.
_PUT = {
    Act.REQUEUE: State.WAITING,
    Act.FAIL: State.WAITING,
    Act.RELEASE: State.ACTIVE,
    Act.RETRY: State.WAITING,
    Act.PROMOTE: State.WAITING,
}


@dataclass(frozen=True, slots=True)
class Scene:
    """Context of an action on a queue that may be changed. The wire of `target` is asked even after a failure."""

    queue: Queue
    target: Target
    operator: QueueOperator
    snapshot: Snapshot | None


@dataclass(frozen=True, slots=True)
class Judged:
    """A job with its judgement, and the row and verdict that it was judged by."""

    judgement: Judgement
    row: JobRow | None
    verdict: Verdict | None
    standing: Standing | None = None  # of its execution, when it is a job of n8n's or the execution itself


def scene(ref: QueueRef, act: Act, epoch: int | None = None, installation: str = "") -> Scene:
    """Returns an action's context. Raises Missing, StoreError, and Unsupported if nothing may be changed so.

    `epoch`: of the scheduler that acts, and whose it is; under None no fence is asked.
    """
    deployment = registry().config.deployment(ref.deployment)
    if deployment.read_only:
        raise Unsupported(f"The deployment {shown(deployment.name)} is configured to be read only.")
    snapshot = _newest(now())
    queue = lists.identified(lists.locate(ref, snapshot), snapshot)
    if reason := refusals(queue.flavour).get(act):
        raise Unsupported(reason)
    able = guarded(operator(queue.flavour), ref, queue.flavour, registry().config)
    target = Target(registry().wire(ref.deployment), ref, queue.flavour, epoch, installation)
    return Scene(queue, target, able, snapshot)


def judged(
    order: Order,
    scene: Scene,
    jobs: Sequence[Seen],
    *,
    insists: bool = False,
    rows: Sequence[JobRow | None] | None = None,
) -> tuple[Judged, ...]:
    """Looks at each job afresh, and judges whether the action may be done to it. `insists`: the caller is about to do
    it; raises NotRecorded when what has to be known of them cannot be read. `rows`: the jobs, if the caller has just
    read them.
    """
    if rows is None:
        rows = scene.queue.rows([(seen.id, seen.state) for seen in jobs], by_script=order.epoch is None)
    return judged_rows(order, scene, jobs, rows, verdicts(order.act, scene, rows, insists=insists))


def judged_rows(
    order: Order,
    scene: Scene,
    jobs: Sequence[Seen],
    rows: Sequence[JobRow | None],
    verdicts: Mapping[str, Verdict],
) -> tuple[Judged, ...]:
    """Judges jobs whose rows were read just now."""
    standings = _standings(order.act, scene, rows)
    effects = _effects(order, scene, rows)
    right = _lacking(order)
    cases = (
        Case(seen.id, row, verdicts.get(seen.id), seen, standings.get(seen.id), effects.get(seen.id, NO_EFFECTS), right)
        for seen, row in zip(jobs, rows, strict=True)
    )
    return tuple(_judged(order, scene, case) for case in cases)


def followed(order: Order, scene: Scene, jobs: Sequence[Seen]) -> Scene:
    """Returns the context with a read of the jobs behind each script: how it left them, without another round trip.

    Not for scanners: of one whose user may run no script the store is to note one refusal, not three.
    """
    if order.act not in _PUT or order.epoch is not None:
        return scene
    place = State.WAITING if order.options.requeue else _PUT[order.act]
    wanted = [(seen.id, place) for seen in jobs]
    following = scene.queue.reader.following(scene.target.wire, scene.queue.ref, wanted)
    return replace(scene, target=replace(scene.target, following=following))


def options(order: Order, judged: Sequence[Judged]) -> Options:
    """Returns the options as ordered, with what only a look tells: that these orphans were proven by two sightings."""
    allowed = [one for one in judged if one.judgement.is_allowed]
    is_late = bool(allowed) and all(is_proven(one.verdict) for one in allowed)
    affected = {str(other.job) for one in allowed for other in one.judgement.effects.affected}
    shown = order.options.affected
    return replace(order.options, is_late=is_late, affected=frozenset(affected if shown is None else affected & shown))


def _effects(order: Order, scene: Scene, rows: Sequence[JobRow | None]) -> Mapping[str, ActionEffects]:
    """Reads the effects on parents and children, of jobs that have some: most have none, and their row says so."""
    if order.act not in _ON_OTHERS:
        return {}
    related = [row for row in rows if row is not None and (row.parent or order.options.children)]
    found: dict[str, ActionEffects] = {}
    size = scene.operator.chunk(order.act)
    for start in range(0, len(related), size):
        part = [Seen.of(row) for row in related[start : start + size]]
        found |= scene.operator.effects(order.act, scene.target, part, order.options)
    return found


def _lacking(order: Order) -> Right | None:
    """Returns the right to act on more than one job, if the actor lacks it."""
    right = ENTRIES[order.act].right(many=True)
    return None if order.actor.may(right) else right


def seen(ref: QueueRef, ids: Sequence[str]) -> tuple[Seen, ...]:
    """Returns these jobs as they are now, for callers that have only their ids. One that is gone is in no state."""
    queue = lists.locate(ref, _newest(now()))
    found: list[Seen] = []
    for start in range(0, len(ids), LOOKED_UP):
        part = ids[start : start + LOOKED_UP]
        rows = queue.rows([(id, State.UNKNOWN) for id in part], by_script=True)
        found += [Seen.of(row) if row else Seen(id, State.UNKNOWN) for id, row in zip(part, rows, strict=True)]
    return tuple(found)


def now() -> int:
    return shared_clock.now()


def _judged(order: Order, scene: Scene, case: Case) -> Judged:
    judgement = judge(order.act, order.queue, scene.queue.flavour, order.options, case)
    return Judged(judgement, case.row, case.verdict, case.standing)


def _standings(act: Act, scene: Scene, rows: Sequence[JobRow | None]) -> Mapping[str, Standing]:
    """Returns what n8n's database says of the jobs that exist; nothing of queues that are not n8n's."""
    queue, ids = scene.queue, [row.id for row in rows if row is not None]
    if queue.flavour.library is Library.N8N:
        found = standing.of_executions(registry(), queue.ref, ids, scene.snapshot, now(), is_rerun=act is Act.RELAUNCH)
        if act is not Act.RESCUE:
            return found
        return rescue_standing.added(registry(), queue.ref, found, scene.snapshot, now())
    is_its = registry().config.n8n_of(queue.ref) is not None or is_n8n(queue.ref, queue.flavour)
    return standing.of_jobs(registry(), queue, ids) if is_its and queue.flavour.library is Library.BULL else {}


def verdicts(act: Act, scene: Scene, rows: Sequence[JobRow | None], *, insists: bool) -> dict[str, Verdict]:
    """Returns the verdicts that the action asks for. Raises NotRecorded as `judged` does."""
    there = tuple(row for row in rows if row is not None)
    if act not in _JUDGED or not there:
        return {}
    found = dict(stuck.of_rows(scene.queue, there, scene.snapshot, now(), insists=insists))
    # No worker holds a failed job; its data is checked all the same.
    return found | stuck.malformed(scene.queue, there) if act is Act.RETRY else found


def _newest(now: int) -> Snapshot | None:
    """Returns the newest snapshot, or None if there is no fresh one: then the queue itself is asked what it is."""
    try:
        found = windows.get(("snapshot",), lambda: snapshots.fetch(registry().state()))
    except (ConfigError, StoreError):
        return None
    return found if found is not None and now - found.taken_at <= STALE_MS else None
