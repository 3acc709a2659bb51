"""Operator of Bull 3 and 4: which module does which act, and which cannot be done at all.

The exact version of Bull cannot be told from Redis. Every act does what its newest version does, where older ones are
not harmed by it; each script says which those are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.backends.base import ACTIVE_CHUNK, MOVE_CHUNK, Target
from recovery.backends.bull import pause_cancel, recover, remove, retry_promote
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
from recovery.errors import Unsupported

OnJobs = Callable[[Target, Sequence[ExpectedJob], ActionOptions, int], tuple[ScriptOutcome, ...]]

_ON_JOBS: Mapping[Action, OnJobs] = {
    Action.REQUEUE: recover.requeue,
    Action.FAIL: recover.fail,
    Action.RELEASE: recover.release,
    Action.RETRY: retry_promote.retry,
    Action.PROMOTE: retry_promote.promote,
    Action.REMOVE: remove.remove,
    Action.CANCEL: pause_cancel.cancel,
}
_SMALL = frozenset({Action.CANCEL, Action.REMOVE, Action.FAIL})  # what was removed is dumped and kept
_MIXED = "Bull and BullMQ workers both use this queue: a change for one of them can break the other."


class BullOperator:
    """Operator of Bull. Stateless: which queue it is comes with every call."""

    def refusals(self, flavour: LibraryVersion) -> Mapping[Action, str]:
        reason = flavour.read_only or (_MIXED if flavour.mixed else "")
        return dict.fromkeys(Action, reason) if reason else {}

    def chunk(self, act: Action) -> int:
        return ACTIVE_CHUNK if act in _SMALL else MOVE_CHUNK

    def effects(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions
    ) -> Mapping[str, ActionEffects]:
        return {}

    def on_jobs(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        self._check(act, target.flavour)
        if act not in _ON_JOBS:
            raise Unsupported(f"{act} does not apply to single jobs.")
        if len(jobs) > self.chunk(act):
            raise ValueError(f"{act} takes at most {self.chunk(act)} jobs at once, not {len(jobs)}")
        return _ON_JOBS[act](target, jobs, options, now) if jobs else ()

    def on_queue(self, act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
        self._check(act, target.flavour)
        if act not in (Action.PAUSE, Action.RESUME):
            raise Unsupported(f"{act} does not apply to a whole queue.")
        return pause_cancel.pause_or_resume(act, target, options, now)

    def take_away(self, act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
        self._check(act, target.flavour)
        if act not in (Action.CLEAN, Action.DRAIN):
            raise Unsupported(f"{act} removes nothing.")
        return remove.take_away(act, target, options, now, budget=budget)

    def put_back(self, target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
        self._check(Action.RESTORE, target.flavour)
        return remove.put_back(target, kept, now)

    def fence(self, target: Target) -> None:
        fencing.raise_for(target)

    def _check(self, act: Action, flavour: LibraryVersion) -> None:
        """Raises Unsupported for what this flavour forbids, whichever process asks."""
        if reason := self.refusals(flavour).get(act):
            raise Unsupported(reason)
