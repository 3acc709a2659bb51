"""Pauses and resumes a queue, and publishes requests to cancel a running job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recovery.backends.base import Command, Target
from recovery.backends.bullmq import scripts
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.versions import BullMQTraits
from recovery.backends.redis_common import decode, fencing
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState

_SCRIPTS = {Action.PAUSE: "pause-queue", Action.RESUME: "resume-queue"}
_ALREADY = {Action.PAUSE: "The queue is paused already.", Action.RESUME: "The queue is not paused."}
_NOBODY = (
    "No worker listens for it, and BullMQ itself has no way to stop a running job from outside. "
    "docs/cancel.md has the ten lines that make a worker listen."
)


def pause_or_resume(
    act: Action, target: Target, traits: BullMQTraits, options: ActionOptions, now: int
) -> ScriptOutcome:
    """Pauses or resumes a queue; unchanged when it is so already."""
    keys = scripts.queue_keys(target.ref.base)
    answer = decode.octets(scripts.run(target, _SCRIPTS[act], keys, [traits.for_script()]))
    if answer == b"unchanged":
        return ScriptOutcome("", Outcome.UNCHANGED, _ALREADY[act])
    return ScriptOutcome("", Outcome.DONE)


def cancel_channel(base: str) -> bytes:
    return b"unstall:cancel:" + encode_name(base)


def cancel(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Publishes to listening workers that these jobs are not wanted any more. The worker decides what comes of it."""
    keys = BullMQKeys(target.ref.base)
    locks: list[Command] = [(b"GET", keys.lock(encode_name(seen.id))) for seen in jobs]
    holders = target.wire.call(locks)
    refused = {
        seen.id: refusal for seen, lock in zip(jobs, holders, strict=True) if (refusal := _not_held(target, seen, lock))
    }
    wanted = [seen for seen in jobs if seen.id not in refused]
    fencing.raise_for(target)  # a cancellation changes nothing in the store, so it need not be one step with it
    channel = cancel_channel(target.ref.base)
    commands: list[Command] = [(b"PUBLISH", channel, json.dumps(seen.id)) for seen in wanted]
    heard = dict(zip((seen.id for seen in wanted), target.wire.call(commands) if commands else (), strict=True))
    return tuple(refused.get(seen.id) or _told(target, seen, heard[seen.id]) for seen in jobs)


def _not_held(target: Target, seen: ExpectedJob, lock: Any) -> ScriptOutcome | None:
    raise_if_refused(lock, target.ref, b"GET")
    if seen.state is not JobState.ACTIVE:
        return ScriptOutcome(
            seen.id, Outcome.REFUSED, f"Only a job that runs can be cancelled; it is {seen.state}.", seen.state
        )
    if lock is None:
        return ScriptOutcome(seen.id, Outcome.REFUSED, "No worker holds it (any more), so no worker can be notified.")
    if decode.name(lock) != seen.token:
        return ScriptOutcome(
            seen.id, Outcome.REFUSED, "Another worker holds it now than when it was shown.", JobState.ACTIVE
        )
    return None


def _told(target: Target, seen: ExpectedJob, heard: Any) -> ScriptOutcome:
    raise_if_refused(heard, target.ref, b"PUBLISH")
    if not heard:
        return ScriptOutcome(seen.id, Outcome.REFUSED, _NOBODY, JobState.ACTIVE)
    listeners = "1 listener was notified" if heard == 1 else f"{heard} listeners were notified"
    return ScriptOutcome(seen.id, Outcome.DONE, f"{listeners}; the worker that runs it stops it.", JobState.ACTIVE)
