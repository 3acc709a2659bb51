"""Removes jobs one by one, and restores them; by the many see sweeping.py.

Each job is a script of its own, and a batch of them one round trip: a job may stand in a long list, which is searched,
and is packed before it goes. So no client waits longer than for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recovery.backends.base import Target
from recovery.backends.bullmq import calls, keepsakes, kin
from recovery.backends.bullmq.kin import JobDescendants, Relative, Unreached
from recovery.backends.bullmq.sweeping import take_away
from recovery.backends.bullmq.versions import Traits
from recovery.backends.shared import decode, fence
from recovery.backends.shared.refusals import insist
from recovery.connections.scripts import Part
from recovery.domain.acting import ActionEffects, Affected, Done, Kept, Options, Outcome, RelativeChange, Seen
from recovery.domain.refs import raw

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


def remove(target: Target, traits: Traits, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """Removes jobs in whatever state they are, unless a worker holds their lock."""
    plans = _plans(target, jobs, options)
    most = keepsakes.keep_limit(len(jobs))
    runs = [(_keys(target, plan), _args(traits, plan, options, now, most)) for plan in plans if not plan.refusal]
    answers = iter(calls.each(target, "remove-job", runs))
    dones = [plan.refused() if plan.refusal else _done(target, plan, next(answers)) for plan in plans]
    has_moved = [plan.seen for plan, done in zip(plans, dones, strict=True) if done is None]
    where = calls.moved(target, has_moved)
    return tuple(done or where[plan.seen.id] for plan, done in zip(plans, dones, strict=True))


@dataclass(frozen=True, slots=True)
class _Plan:
    """Plan of how one job is removed: its relatives, or why not."""

    seen: Seen
    key: bytes
    parent: tuple[Relative, ...] = ()
    descent: JobDescendants = kin.CHILDLESS
    refusal: str = ""

    def refused(self) -> Done:
        return Done(self.seen.id, Outcome.REFUSED, self.refusal, self.seen.state)


def _plans(target: Target, jobs: Sequence[Seen], options: Options) -> list[_Plan]:
    keys = [kin.own_key(target, seen.id) for seen in jobs]
    above, below = kin.around(target, keys, options)
    plans = [_plan(seen, key, above[key], below.get(key, kin.CHILDLESS)) for seen, key in zip(jobs, keys, strict=True)]
    return [_within(target, plan, options.affected) for plan in plans]


def _plan(seen: Seen, key: bytes, parent: Relative | Unreached | None, descent: JobDescendants | Unreached) -> _Plan:
    if isinstance(parent, Unreached) or isinstance(descent, Unreached):
        return _Plan(seen, key, refusal=str(parent if isinstance(parent, Unreached) else descent))
    return _Plan(seen, key, (parent,) if parent else (), descent)


def _within(target: Target, plan: _Plan, affected: frozenset[str] | None) -> _Plan:
    """Refuses a plan that takes a child along that was not there when the family was looked at."""
    if affected is None or {str(kin.ref_of(target, child)) for child in plan.descent.found} <= affected:
        return plan
    return replace(plan, descent=kin.CHILDLESS, refusal=_WHY["family"])


def _keys(target: Target, plan: _Plan) -> tuple[Part, ...]:
    return (*calls.queue_keys(target.ref.base), plan.key, *kin.keys_of((*plan.parent, *plan.descent.found)))


def _args(traits: Traits, plan: _Plan, options: Options, now: int, most: int) -> tuple[Part, ...]:
    return (
        *(traits.for_script(), now, raw(plan.seen.id), keepsakes.PLACES[plan.seen.state]),
        *calls.seen_args(plan.seen),
        *(most, int(options.children), int(options.other_queues), len(plan.parent), len(plan.descent.staying)),
        *plan.descent.staying,
        *kin.args_of((*plan.parent, *plan.descent.found)),
    )


def _done(target: Target, plan: _Plan, reply: Any) -> Done | None:
    """Returns the result of one job; None: it is not as it was seen."""
    if (rival := fence.met_by(reply)) is not None:
        return fence.refusal(plan.seen, rival)
    insist(reply, target.ref, b"EVALSHA")
    word = decode.name(reply[0])
    if word == "done":
        children = plan.descent.found
        kept = None if children else keepsakes.kept_of(reply[1])
        why = _WITH_CHILDREN if children else _TOO_BIG if keepsakes.is_too_big(reply[1]) else ""
        has_waited = bool(keepsakes.parent_of(reply[1]))
        return Done(plan.seen.id, Outcome.DONE, why, kept=kept, affected=affected(target, plan, has_waited=has_waited))
    if word == "missing":
        return Done(plan.seen.id, Outcome.MISSING, _MISSING)
    return None if word == "moved" else Done(plan.seen.id, Outcome.REFUSED, _WHY[word], plan.seen.state)


def effects(target: Target, jobs: Sequence[Seen], options: Options) -> dict[str, ActionEffects]:
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


def affected(target: Target, plan: _Plan, *, has_waited: bool) -> tuple[Affected, ...]:
    """Returns the children that go with a job, and the parent that waits for it no more."""
    children = [Affected(kin.ref_of(target, one), RelativeChange.REMOVED) for one in plan.descent.found]
    parent = [Affected(kin.ref_of(target, one), RelativeChange.RELEASED) for one in plan.parent if has_waited]
    return (*children, *parent)


def put_back(target: Target, traits: Traits, kept: Kept, now: int) -> Done:
    """Restores a job to its place: in a list in front of its old neighbour, or next to run if that is gone."""
    key = kin.own_key(target, kept.id)
    parent = _parent_of(target, kept)
    if isinstance(parent, Unreached):
        return Done(kept.id, Outcome.REFUSED, str(parent))
    keys = (*calls.queue_keys(target.ref.base), key, *kin.keys_of(parent))
    place = (keepsakes.PLACES[kept.state], kept.score, raw(kept.before))
    relation = kin.args_of(parent) or ("", "")
    args = (traits.for_script(), raw(kept.id), *place, *relation, *keepsakes.args_of(kept))
    word, _, reason = decode.name(calls.run(target, "restore-job", keys, args)).partition(" ")
    if word == "done":
        return Done(kept.id, Outcome.DONE, state=kept.state)
    return Done(kept.id, Outcome.REFUSED, _WHY_NOT_BACK.get(word) or f"The store refuses to restore it: {reason}")


def _parent_of(target: Target, kept: Kept) -> tuple[Relative, ...] | Unreached:
    """Returns the parent that waited for it, if there still is one."""
    key = raw(kept.parent)
    if not key or not decode.count(target.wire.call([(b"EXISTS", key)])[0]):
        return ()
    found = kin.relatives(target, [key])[key]
    return found if isinstance(found, Unreached) else (found,)
