"""Performs every action that changes a queue, for pages, shell, API and scanners alike: there is no other way.

Each time: 1. the right to do it; 2. a target that may be changed in this way; 3. a fresh look; 4. the intent in the
audit, committed; 5. the action; 6. its outcome in the audit. Without 4 there is no 5.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from recovery.actions import jobs, keep, queues, reasons, sight, undo
from recovery.actions.catalog import ENTRIES, Entry
from recovery.actions.jobs import Told
from recovery.actions.judge import judge_queue
from recovery.actions.sight import Scene
from recovery.domain.acting import Act, Actor, Affected, JobResult, Judgement, Order, RelativeChange, Right, Seen
from recovery.domain.counts import QueueSample
from recovery.domain.jobs import JobRow
from recovery.domain.refs import QueueRef
from recovery.errors import BadOrder, Forbidden
from recovery.reads.lists import count_of

AT_ONCE = 1000  # jobs of one order: as many as one request can wait for; more need a bulk run
NAMED_FROM = 100  # jobs, with those that go or fail with them, from which on the queue's name is to be typed
_UNKEPT = "The state store does not answer or refuses writes, so this cannot be undone."


@dataclass(frozen=True, slots=True)
class Preview:
    """Judgement of an order, made now. `count`: about how many jobs a clean or a drain finds; None: unknown."""

    order: Order
    judgements: tuple[Judgement, ...]
    can: int
    refused: int
    needs_name: bool
    question: str
    risk: str
    entry: Entry
    count: int | None = None

    @property
    def relatives(self) -> int:
        """Number of other jobs that are deleted, or fail, with those."""
        return len(_relatives(self.judgements))


def preview(order: Order, rows: Sequence[JobRow] | None = None) -> Preview:
    """Judges an order; changes nothing, needs no reason. Raises Forbidden, BadOrder, Unsupported, Missing, StoreError.

    `rows`: the order's jobs, in its order, if the caller has read them for this very preview.
    """
    order = _permitted(order)
    entry = ENTRIES[order.act]
    scene = sight.scene(order.queue, order.act)
    if entry.is_for_queue:
        judgements: tuple[Judgement, ...] = (judge_queue(order.act, order.queue, scene.queue.flavour, order.options),)
    else:
        judgements = tuple(one.judgement for one in sight.judged(order, scene, order.jobs, rows=rows))
    return _preview(order, entry, scene, judgements)


def perform(order: Order, callbacks: jobs.Callbacks = jobs.NO_CALLBACKS) -> tuple[JobResult, ...]:
    """Performs an order; returns one result a job, in their order; one for the queue itself.

    Raises Forbidden, BadOrder, NotRecorded, Unsupported, Missing, and StoreError, each with nothing done; and Fenced,
    which says what was done until then. The audit holds all of it.
    """
    order = _reasoned(_permitted(order))
    entry = ENTRIES[order.act]
    scene = sight.scene(order.queue, order.act, order.epoch, order.installation)
    if entry.in_steps:
        return (queues.sweep(order, scene),)
    if entry.is_for_queue:
        return (queues.turn(order, scene),)
    return jobs.perform(order, scene, callbacks)


def perform_looked(
    order: Order, scene: Scene, looked: Sequence[sight.Judged], callbacks: jobs.Callbacks
) -> tuple[JobResult, ...]:
    """`perform` for jobs that a bulk run has just read and judged."""
    return jobs.act_on(_reasoned(_permitted(order)), scene, looked, callbacks)


def step(order: Order, told: Told | None = None) -> queues.Step:
    """Executes one step of a clean or a drain, so that the caller can show progress. The step says if it was fenced."""
    order = _reasoned(_permitted(order))
    return queues.step(order, sight.scene(order.queue, order.act, order.epoch, order.installation), told)


def sweep(order: Order) -> JobResult:
    """Executes a clean or a drain to its end, however long it takes: for the shell, where an operator waits for it."""
    order = _reasoned(_permitted(order))
    return queues.sweep(order, sight.scene(order.queue, order.act, order.epoch, order.installation), sys.maxsize)


def restore(number: int, actor: Actor, reason: str, ids: tuple[str, ...] = ()) -> tuple[JobResult, ...]:
    """Restores what the audit's entry of this number removed, all of it or these jobs; itself an audited action.

    Raises as `perform` does; Missing when nothing of it is kept (any more).
    """
    found = undo.kept(number, ids)
    order = Order(Act.RESTORE, found.queue, actor, reason, tuple(Seen(job.id, job.state) for job in found.jobs))
    order = _reasoned(_permitted(order))
    return undo.put_back(order, sight.scene(order.queue, Act.RESTORE), found)


def seen(queue: QueueRef, ids: tuple[str, ...]) -> tuple[Seen, ...]:
    """Returns jobs as they are now, for callers that were not shown them before. Raises Missing, StoreError."""
    return sight.seen(queue, ids)


def ordered(order: Order) -> Order:
    """Checks an order in bulk, which may have any number of jobs, and has them perhaps later; returns it."""
    entry = ENTRIES[order.act]
    require(order.actor, entry.label, entry.right(many=True))
    return _reasoned(_once(order))


def require(actor: Actor, what: str, right: Right) -> None:
    """Raises Forbidden unless the actor has the right."""
    if not actor.may(right):
        raise Forbidden(f"{what} needs the permission to {right.words}.")


def _once(order: Order) -> Order:
    """Returns the order with each job once, as a job that is named twice is meant once."""
    return replace(order, jobs=tuple({seen.id: seen for seen in order.jobs}.values()))


def _permitted(order: Order) -> Order:
    """Checks that the actor may do it, and that it is an order at all; returns the order."""
    entry, actor = ENTRIES[order.act], order.actor
    order = _once(order)
    if order.act is Act.RESTORE and not order.jobs:
        raise BadOrder("Removed jobs are restored by the number of their audit entry.")
    require(actor, entry.label, entry.right(many=False))
    if len(order.jobs) > 1:
        require(actor, f"{entry.label} of more than one job", entry.right(many=True))
    if entry.is_for_queue and order.jobs:
        raise BadOrder(f"{entry.label} is for the queue itself, not for single jobs.")
    if not entry.is_for_queue and not order.jobs:
        raise BadOrder("Name at least one job.")
    if len(order.jobs) > AT_ONCE:
        raise BadOrder(f"At most {AT_ONCE:,} jobs at once; run more of them in bulk.")
    return order


def _reasoned(order: Order) -> Order:
    return replace(order, reason=reasons.given(order.reason))


def insist_on_undo(order: Order) -> None:
    """Refuses to remove for good unless `force` is given: for callers that see no preview. Raises BadOrder."""
    if ENTRIES[order.act].restorable and not order.options.force and not keep.is_ready():
        raise BadOrder(f"{_UNKEPT} Nothing was changed; use `force` to do it anyway.")


def _preview(order: Order, entry: Entry, scene: Scene, judgements: tuple[Judgement, ...]) -> Preview:
    can = sum(judgement.is_allowed for judgement in judgements)
    risks = dict.fromkeys(judgement.risk for judgement in judgements if judgement.is_allowed and judgement.risk)
    is_final = entry.restorable and not keep.is_ready()
    if is_final:
        risks[_UNKEPT] = None
    count = _count(order, scene.queue.sample)
    return Preview(
        order,
        judgements,
        can,
        len(judgements) - can,
        entry.irreversible or is_final or can + len(_relatives(judgements)) >= NAMED_FROM,
        _question(entry, order, can, count),
        " ".join(risks),
        entry,
        count,
    )


def _relatives(judgements: Sequence[Judgement]) -> set[Affected]:
    """Other jobs that are deleted, or fail, with those that are named, each once."""
    taken = (one.effects.affected for one in judgements if one.is_allowed)
    return {other for affected in taken for other in affected if other.change is not RelativeChange.RELEASED}


def _count(order: Order, sample: QueueSample | None) -> int | None:
    """Returns about how many jobs a clean or a drain would look at, as the snapshot counts them."""
    if sample is None:
        return None
    if order.act is Act.CLEAN:
        return count_of(sample, order.options.state) if order.options.state else None
    if order.act is Act.DRAIN:
        return _sum(sample.counts.backlog, sample.counts.delayed if order.options.delayed else 0)
    return None


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def _question(entry: Entry, order: Order, can: int, count: int | None) -> str:
    name = order.queue.label
    if entry.in_steps:
        about = "" if count is None else f" (about {count:,} jobs)"
        return f"{entry.label} {name}{about}?"
    if entry.is_for_queue:
        return f"{entry.label} {name}?"
    return f"{entry.label} {entry.counted(can)} of {name}?"
