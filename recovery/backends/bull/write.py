"""Operator of Bull 3 and 4: which module does which act, and which cannot be done at all.

The exact version of Bull cannot be told from Redis. Every act does what its newest version does, where older ones are
not harmed by it; each script says which those are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.backends.base import ACTIVE_CHUNK, MOVE_CHUNK, Target
from recovery.backends.bull import active, moves, pausing, removal
from recovery.backends.shared import fence
from recovery.domain.acting import Act, ActionEffects, Done, Kept, Options, Removed, Seen
from recovery.domain.counts import Flavour
from recovery.errors import Unsupported

OnJobs = Callable[[Target, Sequence[Seen], Options, int], tuple[Done, ...]]

_ON_JOBS: Mapping[Act, OnJobs] = {
    Act.REQUEUE: active.requeue,
    Act.FAIL: active.fail,
    Act.RELEASE: active.release,
    Act.RETRY: moves.retry,
    Act.PROMOTE: moves.promote,
    Act.REMOVE: removal.remove,
    Act.CANCEL: pausing.cancel,
}
_SMALL = frozenset({Act.CANCEL, Act.REMOVE, Act.FAIL})  # what was removed is dumped and kept
_MIXED = "Bull and BullMQ workers both use this queue: a change for one of them can break the other."


class BullOperator:
    """Operator of Bull. Stateless: which queue it is comes with every call."""

    def refusals(self, flavour: Flavour) -> Mapping[Act, str]:
        reason = flavour.read_only or (_MIXED if flavour.mixed else "")
        return dict.fromkeys(Act, reason) if reason else {}

    def chunk(self, act: Act) -> int:
        return ACTIVE_CHUNK if act in _SMALL else MOVE_CHUNK

    def effects(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options) -> Mapping[str, ActionEffects]:
        return {}

    def on_jobs(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
        self._check(act, target.flavour)
        if act not in _ON_JOBS:
            raise Unsupported(f"{act} does not apply to single jobs.")
        if len(jobs) > self.chunk(act):
            raise ValueError(f"{act} takes at most {self.chunk(act)} jobs at once, not {len(jobs)}")
        return _ON_JOBS[act](target, jobs, options, now) if jobs else ()

    def on_queue(self, act: Act, target: Target, options: Options, now: int) -> Done:
        self._check(act, target.flavour)
        if act not in (Act.PAUSE, Act.RESUME):
            raise Unsupported(f"{act} does not apply to a whole queue.")
        return pausing.turn(act, target, options, now)

    def take_away(self, act: Act, target: Target, options: Options, now: int, *, budget: int) -> Removed:
        self._check(act, target.flavour)
        if act not in (Act.CLEAN, Act.DRAIN):
            raise Unsupported(f"{act} removes nothing.")
        return removal.take_away(act, target, options, now, budget=budget)

    def put_back(self, target: Target, kept: Kept, now: int) -> Done:
        self._check(Act.RESTORE, target.flavour)
        return removal.put_back(target, kept, now)

    def fence(self, target: Target) -> None:
        fence.raise_for(target)

    def _check(self, act: Act, flavour: Flavour) -> None:
        """Raises Unsupported for what this flavour forbids, whichever process asks."""
        if reason := self.refusals(flavour).get(act):
            raise Unsupported(reason)
