"""Predicts what an action on some jobs would do to their parents and children."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recovery.backends.base import Target
from recovery.backends.bullmq import active, removal
from recovery.backends.bullmq.versions import Traits
from recovery.domain.acting import Act, ActionEffects, Options, Seen


def effects(
    act: Act, target: Target, traits: Traits, jobs: Sequence[Seen], options: Options
) -> Mapping[str, ActionEffects]:
    """Returns the effects by the id of the job. An act that is left to a worker does nothing to others by itself."""
    if act is Act.REMOVE and jobs:
        return removal.effects(target, jobs, options)
    if act is Act.FAIL and jobs and active.fails_here(traits, options):
        return active.effects_of_failing(target, traits, jobs, options)
    return {}
