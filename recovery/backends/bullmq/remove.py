"""Removes jobs one by one, and restores them; by the many see sweeping.py.

Each job is a script of its own, and a batch of them one round trip: a job may stand in a long list, which is searched,
and is packed before it goes. So no client waits longer than for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recovery.backends.base import Target
from recovery.backends.bullmq import relatives, scripts, undo_copy
from recovery.backends.bullmq.clean_drain import take_away
from recovery.backends.bullmq.relatives import JobDescendants, RelativeOutOfReach, RelativeRef
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import decode, fencing
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import (
    ActionEffects,
    ActionOptions,
    ExpectedJob,
    JobSideEffect,
    Outcome,
    RelativeChange,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.identifiers import encode_name
from recovery.stores.redis.scripts import Part

__all__ = ["effects", "put_back", "remove", "take_away"]

_MISSING = "The job is gone: there is no such job any more."
_WHY = {
    "locked": "A worker holds its lock: it is running. Cancel it, or wait until it finishes.",
    "scheduler": "It is the next run of a job scheduler, which would stop without it. Remove the scheduler instead.",
    "foreign": "Another program uses one of the keys that it needs.",
    "books": "A key of its flow (its parent's or a child's) has an unexpected type.",
    "others": "Its parent waits for it in another queue. This needs other_queues.",
    "family": "Its flow has grown since it was read. Try again.",
    "locked child": "A worker holds the lock of one of its children: that one is running.",
    "scheduler child": "One of its children is the next run of a job scheduler.",
    "foreign child": "Another program uses the key of one of its children.",
}
_WITH_CHILDREN = "Its children were removed with it, so it cannot be restored."
_TOO_BIG = "It is too large for an undo copy, so it cannot be restored."
_WHY_NOT_BACK = {
    "taken": "Its id is in use again.",
    "foreign": _WHY["foreign"],
    "books": _WHY["books"],
    "childless": (
        "It waited for children that are gone or finished, and would wait forever. Restore its children first."
    ),
}


def remove(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Removes jobs in whatever state they are, unless a worker holds their lock."""
    plans = _plans(target, jobs, options)
    most = undo_copy.keep_limit(len(jobs))
    runs = [(_keys(target, plan), _args(traits, plan, options, now, most)) for plan in plans if not plan.refusal]
    answers = iter(scripts.run_each(target, "remove-job", runs))
    dones = [plan.refused() if plan.refusal else _done(target, plan, next(answers)) for plan in plans]
    has_moved = [plan.seen for plan, done in zip(plans, dones, strict=True) if done is None]
    where = scripts.explain_moved(target, has_moved)
    return tuple(done or where[plan.seen.id] for plan, done in zip(plans, dones, strict=True))


@dataclass(frozen=True, slots=True)
class _Plan:
    """Plan of how one job is removed: its relatives, or why not."""

    seen: ExpectedJob
    key: bytes
    parent: tuple[RelativeRef, ...] = ()
    descent: JobDescendants = relatives.NO_DESCENDANTS
    refusal: str = ""

    def refused(self) -> ScriptOutcome:
        return ScriptOutcome(self.seen.id, Outcome.REFUSED, self.refusal, self.seen.state)


def _plans(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions) -> list[_Plan]:
    keys = [relatives.own_key(target, seen.id) for seen in jobs]
    above, below = relatives.read_relatives(target, keys, options)
    plans = [
        _plan(seen, key, above[key], below.get(key, relatives.NO_DESCENDANTS))
        for seen, key in zip(jobs, keys, strict=True)
    ]
    return [_within(target, plan, options.affected) for plan in plans]


def _plan(
    seen: ExpectedJob,
    key: bytes,
    parent: RelativeRef | RelativeOutOfReach | None,
    descent: JobDescendants | RelativeOutOfReach,
) -> _Plan:
    if isinstance(parent, RelativeOutOfReach) or isinstance(descent, RelativeOutOfReach):
        return _Plan(seen, key, refusal=str(parent if isinstance(parent, RelativeOutOfReach) else descent))
    return _Plan(seen, key, (parent,) if parent else (), descent)


def _within(target: Target, plan: _Plan, affected: frozenset[str] | None) -> _Plan:
    """Refuses a plan that takes a child along that was not there when the family was looked at."""
    if affected is None or {str(relatives.ref_of(target, child)) for child in plan.descent.found} <= affected:
        return plan
    return replace(plan, descent=relatives.NO_DESCENDANTS, refusal=_WHY["family"])


def _keys(target: Target, plan: _Plan) -> tuple[Part, ...]:
    return (*scripts.queue_keys(target.ref.base), plan.key, *relatives.keys_of((*plan.parent, *plan.descent.found)))


def _args(traits: BullMQTraits, plan: _Plan, options: ActionOptions, now: int, most: int) -> tuple[Part, ...]:
    return (
        *(traits.for_script(), now, encode_name(plan.seen.id), undo_copy.PLACES[plan.seen.state]),
        *scripts.seen_args(plan.seen),
        *(most, int(options.children), int(options.other_queues), len(plan.parent), len(plan.descent.staying)),
        *plan.descent.staying,
        *relatives.args_of((*plan.parent, *plan.descent.found)),
    )


def _done(target: Target, plan: _Plan, reply: Any) -> ScriptOutcome | None:
    """Returns the result of one job; None: it is not as it was seen."""
    if (rival := fencing.rival_in(reply)) is not None:
        return fencing.refusal(plan.seen, rival)
    raise_if_refused(reply, target.ref, b"EVALSHA")
    word = decode.name(reply[0])
    if word == "done":
        children = plan.descent.found
        kept = None if children else undo_copy.parse_copy(reply[1])
        why = _WITH_CHILDREN if children else _TOO_BIG if undo_copy.is_too_big(reply[1]) else ""
        has_waited = bool(undo_copy.parent_of(reply[1]))
        return ScriptOutcome(
            plan.seen.id, Outcome.DONE, why, kept=kept, affected=affected(target, plan, has_waited=has_waited)
        )
    if word == "missing":
        return ScriptOutcome(plan.seen.id, Outcome.MISSING, _MISSING)
    return None if word == "moved" else ScriptOutcome(plan.seen.id, Outcome.REFUSED, _WHY[word], plan.seen.state)


def effects(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions) -> dict[str, ActionEffects]:
    """Returns which relatives change with each of these jobs."""
    plans = _plans(target, jobs, replace(options, affected=None))
    asked = [(b"SISMEMBER", plan.parent[0].key + b":dependencies", plan.key) for plan in plans if plan.parent]
    waits = iter(target.wire.call(asked) if asked else ())
    found = {}
    for plan in plans:
        has_waited = bool(plan.parent) and decode.count(next(waits)) == 1
        changed = affected(target, plan, has_waited=has_waited)
        found[plan.seen.id] = ActionEffects(changed, len(plan.descent.staying), plan.refusal)
    return found


def affected(target: Target, plan: _Plan, *, has_waited: bool) -> tuple[JobSideEffect, ...]:
    """Returns the children that go with a job, and the parent that waits for it no more."""
    children = [JobSideEffect(relatives.ref_of(target, one), RelativeChange.REMOVED) for one in plan.descent.found]
    parent = [
        JobSideEffect(relatives.ref_of(target, one), RelativeChange.RELEASED) for one in plan.parent if has_waited
    ]
    return (*children, *parent)


def put_back(target: Target, traits: BullMQTraits, kept: UndoCopy, now: int) -> ScriptOutcome:
    """Restores a job to its place: in a list in front of its old neighbour, or next to run if that is gone."""
    key = relatives.own_key(target, kept.id)
    parent = _parent_of(target, kept)
    if isinstance(parent, RelativeOutOfReach):
        return ScriptOutcome(kept.id, Outcome.REFUSED, str(parent))
    keys = (*scripts.queue_keys(target.ref.base), key, *relatives.keys_of(parent))
    place = (undo_copy.PLACES[kept.state], kept.score, encode_name(kept.before))
    relation = relatives.args_of(parent) or ("", "")
    args = (traits.for_script(), encode_name(kept.id), *place, *relation, *undo_copy.restore_args(kept))
    word, _, reason = decode.name(scripts.run(target, "restore-job", keys, args)).partition(" ")
    if word == "done":
        return ScriptOutcome(kept.id, Outcome.DONE, state=kept.state)
    return ScriptOutcome(
        kept.id, Outcome.REFUSED, _WHY_NOT_BACK.get(word) or f"The store refuses to restore it: {reason}"
    )


def _parent_of(target: Target, kept: UndoCopy) -> tuple[RelativeRef, ...] | RelativeOutOfReach:
    """Returns the parent that waited for it, if there still is one."""
    key = encode_name(kept.parent)
    if not key or not decode.count(target.wire.call([(b"EXISTS", key)])[0]):
        return ()
    found = relatives.relatives(target, [key])[key]
    return found if isinstance(found, RelativeOutOfReach) else (found,)
