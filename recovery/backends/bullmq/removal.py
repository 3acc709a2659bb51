"""Jobs that are taken away one by one, and put back; by the many see sweeping.py.

Each job is a script of its own, and a batch of them one round trip: a job may stand in a long list, which is searched,
and is packed before it goes. So nobody waits longer than for one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from recovery.backends.base import Target
from recovery.backends.bullmq import calls, keepsakes, kin
from recovery.backends.bullmq.kin import Relative, Unreached
from recovery.backends.bullmq.sweeping import take_away
from recovery.backends.bullmq.versions import Traits
from recovery.backends.shared import decode, fence
from recovery.backends.shared.refusals import insist
from recovery.connections.scripts import Part
from recovery.domain.acting import Done, Kept, Options, Outcome, Seen
from recovery.domain.refs import raw

__all__ = ["put_back", "remove", "take_away"]

_MISSING = "The job is gone: there is no such job any more."
_WHY = {
    "locked": "A worker holds its lock: it is running. Cancel it, or wait for its end.",
    "scheduler": "It is the next run of a scheduler, which would end without it. Remove the scheduler instead.",
    "foreign": "Under one of the names it needs, another program keeps something else.",
    "books": "Its parent or a child keeps something else where the family is written down.",
    "family": "Its family has grown since it was looked up. Try again.",
    "locked child": "A worker holds the lock of one of its children: that one is running.",
    "scheduler child": "One of its children is the next run of a scheduler.",
    "foreign child": "Under the name of one of its children, another program keeps something else.",
}
_WITH_CHILDREN = "Its children went with it, so it cannot be put back."
_TOO_BIG = "It is too big to be kept, so it cannot be put back."
_WHY_NOT_BACK = {
    "taken": "Its id is in use again.",
    "foreign": _WHY["foreign"],
    "books": _WHY["books"],
    "childless": "It waited for children that are gone or done, and would wait for ever. Put its children back first.",
}


def remove(target: Target, traits: Traits, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """Whatever state a job is in, unless somebody holds its lock."""
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
    """How one job is removed: its relatives, or why not."""

    seen: Seen
    key: bytes
    parent: tuple[Relative, ...] = ()
    children: tuple[Relative, ...] = ()
    refusal: str = ""

    def refused(self) -> Done:
        return Done(self.seen.id, Outcome.REFUSED, self.refusal, self.seen.state)


def _plans(target: Target, jobs: Sequence[Seen], options: Options) -> list[_Plan]:
    keys = [kin.own_key(target, seen.id) for seen in jobs]
    above, below = kin.around(target, keys, with_children=options.children)
    return [_plan(seen, key, above[key], below.get(key, ())) for seen, key in zip(jobs, keys, strict=True)]


def _plan(
    seen: Seen, key: bytes, parent: Relative | Unreached | None, children: tuple[Relative, ...] | Unreached
) -> _Plan:
    if isinstance(parent, Unreached) or isinstance(children, Unreached):
        return _Plan(seen, key, refusal=str(parent if isinstance(parent, Unreached) else children))
    return _Plan(seen, key, (parent,) if parent else (), children)


def _keys(target: Target, plan: _Plan) -> tuple[Part, ...]:
    return (*calls.queue_keys(target.ref.base), plan.key, *kin.keys_of((*plan.parent, *plan.children)))


def _args(traits: Traits, plan: _Plan, options: Options, now: int, most: int) -> tuple[Part, ...]:
    return (
        *(traits.for_script(), now, raw(plan.seen.id), keepsakes.PLACES[plan.seen.state]),
        *calls.seen_args(plan.seen),
        *(most, int(options.children), len(plan.parent)),
        *kin.args_of((*plan.parent, *plan.children)),
    )


def _done(target: Target, plan: _Plan, reply: Any) -> Done | None:
    """None: it is not as it was seen."""
    if (rival := fence.met_by(reply)) is not None:
        return fence.refusal(plan.seen, rival)
    insist(reply, target.ref, b"EVALSHA")
    word = decode.name(reply[0])
    if word == "done":
        kept = None if plan.children else keepsakes.kept_of(reply[1])
        why = _WITH_CHILDREN if plan.children else _TOO_BIG if keepsakes.is_too_big(reply[1]) else ""
        return Done(plan.seen.id, Outcome.DONE, why, kept=kept)
    if word == "missing":
        return Done(plan.seen.id, Outcome.MISSING, _MISSING)
    return None if word == "moved" else Done(plan.seen.id, Outcome.REFUSED, _WHY[word], plan.seen.state)


def put_back(target: Target, traits: Traits, kept: Kept, now: int) -> Done:
    """To its place: in a list in front of its old neighbour, or next to run when that is not there any more."""
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
    return Done(kept.id, Outcome.REFUSED, _WHY_NOT_BACK.get(word) or f"The store does not take it back: {reason}")


def _parent_of(target: Target, kept: Kept) -> tuple[Relative, ...] | Unreached:
    """The parent that waited for it, if there still is one."""
    key = raw(kept.parent)
    if not key or not decode.count(target.wire.call([(b"EXISTS", key)])[0]):
        return ()
    found = kin.relatives(target, [key])[key]
    return found if isinstance(found, Unreached) else (found,)
