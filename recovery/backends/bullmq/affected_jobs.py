"""Predicts what an action on some jobs would do to their parents and children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.backends.base import Target
from recovery.backends.bullmq import recover, remove
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.domain.actions.types import Action, ActionEffects, ActionOptions, ExpectedJob


def effects(
    act: Action, target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions
) -> Mapping[str, ActionEffects]:
    """Returns the effects by the id of the job. An act that is left to a worker does nothing to others by itself."""
    if act is Action.REMOVE and jobs:
        return remove.effects(target, jobs, options)
    if act is Action.FAIL and jobs and recover.fails_here(traits, options):
        return recover.effects_of_failing(target, traits, jobs, options)
    return {}
