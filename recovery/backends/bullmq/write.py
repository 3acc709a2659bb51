"""Operator of BullMQ 3 to 6: which module does which act, and which cannot be done at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.backends.base import ACTIVE_CHUNK, MOVE_CHUNK, Target
from recovery.backends.bullmq import active, affected_jobs, moves, pausing, removal, versions
from recovery.backends.bullmq.versions import Traits
from recovery.backends.shared import fence
from recovery.domain.acting import Act, ActionEffects, Done, Kept, Options, Removed, Seen
from recovery.domain.counts import Flavour
from recovery.errors import Fenced, Unsupported

OnJobs = Callable[[Target, Traits, Sequence[Seen], Options, int], tuple[Done, ...]]

_ON_JOBS: Mapping[Act, OnJobs] = {
    Act.REQUEUE: active.requeue,
    Act.FAIL: active.fail,
    Act.RELEASE: active.release,
    Act.RETRY: moves.retry,
    Act.PROMOTE: moves.promote,
    Act.REMOVE: removal.remove,
    Act.CANCEL: pausing.cancel,
}
# One script for all jobs of a call: one that fails or is removed may have relatives, and a removed one is kept.
_AT_ONCE = frozenset({Act.CANCEL, Act.REMOVE, Act.FAIL})


class BullMQOperator:
    """Operator of BullMQ. Stateless: which queue, and which version keeps it, comes with every call."""

    def refusals(self, flavour: Flavour) -> Mapping[Act, str]:
        return versions.refusals(flavour)

    def chunk(self, act: Act) -> int:
        return ACTIVE_CHUNK if act in _AT_ONCE else MOVE_CHUNK

    def effects(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options) -> Mapping[str, ActionEffects]:
        return affected_jobs.effects(act, target, self._traits(act, target.flavour), jobs, options)

    def on_jobs(self, act: Act, target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
        traits = self._traits(act, target.flavour)
        if act not in _ON_JOBS:
            raise Unsupported(f"{act} does not apply to single jobs.")
        if len(jobs) > self.chunk(act):
            raise ValueError(f"{act} takes at most {self.chunk(act)} jobs at once, not {len(jobs)}")
        try:
            return _ON_JOBS[act](target, traits, jobs, options, now) if jobs else ()
        except Fenced as error:  # before anything was done
            return tuple(fence.refusal(seen, error.met) for seen in jobs)

    def on_queue(self, act: Act, target: Target, options: Options, now: int) -> Done:
        traits = self._traits(act, target.flavour)
        if act not in (Act.PAUSE, Act.RESUME):
            raise Unsupported(f"{act} does not apply to a whole queue.")
        return pausing.turn(act, target, traits, options, now)

    def take_away(self, act: Act, target: Target, options: Options, now: int, *, budget: int) -> Removed:
        traits = self._traits(act, target.flavour)
        if act not in (Act.CLEAN, Act.DRAIN):
            raise Unsupported(f"{act} removes nothing.")
        return removal.take_away(act, target, traits, options, now, budget=budget)

    def put_back(self, target: Target, kept: Kept, now: int) -> Done:
        return removal.put_back(target, self._traits(Act.RESTORE, target.flavour), kept, now)

    def fence(self, target: Target) -> None:
        fence.raise_for(target)

    def _traits(self, act: Act, flavour: Flavour) -> Traits:
        """Returns the traits. Raises Unsupported for what this flavour forbids, whichever process asks."""
        if reason := self.refusals(flavour).get(act):
            raise Unsupported(reason)
        return Traits.of(flavour)
