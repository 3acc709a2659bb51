"""Pauses and resumes a queue, and publishes requests to cancel a running job."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from recovery.backends.base import Command, Target
from recovery.backends.bullmq import calls
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.versions import Traits
from recovery.backends.shared import decode, fence
from recovery.backends.shared.refusals import insist
from recovery.domain.acting import Act, Done, Options, Outcome, Seen
from recovery.domain.jobs import State
from recovery.domain.refs import raw

_SCRIPTS = {Act.PAUSE: "pause-queue", Act.RESUME: "resume-queue"}
_ALREADY = {Act.PAUSE: "The queue is paused already.", Act.RESUME: "The queue is not paused."}
_NOBODY = (
    "No worker listens for it, and BullMQ itself has no way to stop a running job from outside. "
    "docs/cancel.md has the ten lines that make a worker listen."
)


def turn(act: Act, target: Target, traits: Traits, options: Options, now: int) -> Done:
    """Pauses or resumes a queue; unchanged when it is so already."""
    keys = calls.queue_keys(target.ref.base)
    answer = decode.octets(calls.run(target, _SCRIPTS[act], keys, [traits.for_script()]))
    if answer == b"unchanged":
        return Done("", Outcome.UNCHANGED, _ALREADY[act])
    return Done("", Outcome.DONE)


def cancel_channel(base: str) -> bytes:
    return b"unstall:cancel:" + raw(base)


def cancel(target: Target, traits: Traits, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """Publishes to listening workers that these jobs are not wanted any more. The worker decides what comes of it."""
    keys = BullMQKeys(target.ref.base)
    locks: list[Command] = [(b"GET", keys.lock(raw(seen.id))) for seen in jobs]
    holders = target.wire.call(locks)
    refused = {
        seen.id: refusal for seen, lock in zip(jobs, holders, strict=True) if (refusal := _not_held(target, seen, lock))
    }
    wanted = [seen for seen in jobs if seen.id not in refused]
    fence.raise_for(target)  # a wish changes nothing in the store, so it need not be one step with it
    channel = cancel_channel(target.ref.base)
    wishes: list[Command] = [(b"PUBLISH", channel, json.dumps(seen.id)) for seen in wanted]
    heard = dict(zip((seen.id for seen in wanted), target.wire.call(wishes) if wishes else (), strict=True))
    return tuple(refused.get(seen.id) or _told(target, seen, heard[seen.id]) for seen in jobs)


def _not_held(target: Target, seen: Seen, lock: Any) -> Done | None:
    insist(lock, target.ref, b"GET")
    if seen.state is not State.ACTIVE:
        return Done(seen.id, Outcome.REFUSED, f"Only a job that runs can be cancelled; it is {seen.state}.", seen.state)
    if lock is None:
        return Done(seen.id, Outcome.REFUSED, "No worker holds it (any more), so no worker can be notified.")
    if decode.name(lock) != seen.token:
        return Done(seen.id, Outcome.REFUSED, "Another worker holds it now than when it was shown.", State.ACTIVE)
    return None


def _told(target: Target, seen: Seen, heard: Any) -> Done:
    insist(heard, target.ref, b"PUBLISH")
    if not heard:
        return Done(seen.id, Outcome.REFUSED, _NOBODY, State.ACTIVE)
    listeners = "1 listener was notified" if heard == 1 else f"{heard} listeners were notified"
    return Done(seen.id, Outcome.DONE, f"{listeners}; the worker that runs it stops it.", State.ACTIVE)
