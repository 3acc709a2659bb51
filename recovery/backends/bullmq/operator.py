"""Operator of BullMQ 3 to 6: which module does which act, and which cannot be done at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.backends.base import ACTIVE_CHUNK, MOVE_CHUNK, Target
from recovery.backends.bullmq import pause_cancel, recover, remove, retry_promote, versions
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import fencing
from recovery.domain.actions.types import (
    Action,
    ActionEffects,
    ActionOptions,
    ExpectedJob,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.queues.types import LibraryVersion
from recovery.errors import Fenced, Unsupported

# -- affected jobs
# Predicts what an action on some jobs would do to their parents and children.


def effects(
    act: Action, target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions
) -> Mapping[str, ActionEffects]:
    """Returns the effects by the id of the job. An act that is left to a worker does nothing to others by itself."""
    if act is Action.REMOVE and jobs:
        return remove.effects(target, jobs, options)
    if act is Action.FAIL and jobs and recover.fails_here(traits, options):
        return recover.effects_of_failing(target, traits, jobs, options)
    return {}


# -- operator


OnJobs = Callable[[Target, BullMQTraits, Sequence[ExpectedJob], ActionOptions, int], tuple[ScriptOutcome, ...]]

_ON_JOBS: Mapping[Action, OnJobs] = {
    Action.REQUEUE: recover.requeue,
    Action.FAIL: recover.fail,
    Action.RELEASE: recover.release,
    Action.RETRY: retry_promote.retry,
    Action.PROMOTE: retry_promote.promote,
    Action.REMOVE: remove.remove,
    Action.CANCEL: pause_cancel.cancel,
}
# One script for all jobs of a call: one that fails or is removed may have relatives, and a removed one is kept.
_AT_ONCE = frozenset({Action.CANCEL, Action.REMOVE, Action.FAIL})


class BullMQOperator:
    """Operator of BullMQ. Stateless: which queue, and which version keeps it, comes with every call."""

    def refusals(self, flavour: LibraryVersion) -> Mapping[Action, str]:
        return versions.refusals(flavour)

    def chunk(self, act: Action) -> int:
        return ACTIVE_CHUNK if act in _AT_ONCE else MOVE_CHUNK

    def effects(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions
    ) -> Mapping[str, ActionEffects]:
        return effects(act, target, self._traits(act, target.flavour), jobs, options)

    def on_jobs(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        traits = self._traits(act, target.flavour)
        if act not in _ON_JOBS:
            raise Unsupported(f"{act} does not apply to single jobs.")
        if len(jobs) > self.chunk(act):
            raise ValueError(f"{act} takes at most {self.chunk(act)} jobs at once, not {len(jobs)}")
        try:
            return _ON_JOBS[act](target, traits, jobs, options, now) if jobs else ()
        except Fenced as error:  # before anything was done
            return tuple(fencing.refusal(seen, error.met) for seen in jobs)

    def on_queue(self, act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
        traits = self._traits(act, target.flavour)
        if act not in (Action.PAUSE, Action.RESUME):
            raise Unsupported(f"{act} does not apply to a whole queue.")
        return pause_cancel.pause_or_resume(act, target, traits, options, now)

    def take_away(self, act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
        traits = self._traits(act, target.flavour)
        if act not in (Action.CLEAN, Action.DRAIN):
            raise Unsupported(f"{act} removes nothing.")
        return remove.take_away(act, target, traits, options, now, budget=budget)

    def put_back(self, target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
        return remove.put_back(target, self._traits(Action.RESTORE, target.flavour), kept, now)

    def fence(self, target: Target) -> None:
        fencing.raise_for(target)

    def _traits(self, act: Action, flavour: LibraryVersion) -> BullMQTraits:
        """Returns the traits. Raises Unsupported for what this flavour forbids, whichever process asks."""
        if reason := self.refusals(flavour).get(act):
            raise Unsupported(reason)
        return BullMQTraits.of(flavour)
