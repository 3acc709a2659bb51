"""What is done to a whole queue, and the wish to cancel."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from recovery.backends.base import ACTIVE_CHUNK, Target
from recovery.backends.bull import looks, scripted
from recovery.backends.bull.keys import BullKeys
from recovery.backends.bull.scripted import Call
from recovery.backends.shared import decode
from recovery.connections.scripts import Part
from recovery.domain.acting import Act, Done, Options, Outcome, Seen
from recovery.domain.jobs import State
from recovery.domain.refs import raw

CHANNEL = b"unstall:cancel:"  # and the queue's base: where a worker of the application's own may listen

_NOBODY = (
    "No worker listens for it, and Bull itself has no way to stop a running job from outside. "
    "docs/cancel.md has the ten lines that make a worker listen."
)
_N8N = (
    "It is a queue of n8n, which takes the executions of a paused queue for crashed ones after its next look; "
    "stop its workers instead."
)


def turn(act: Act, target: Target, options: Options, now: int) -> Done:
    """Pause or resume."""
    if act is Act.PAUSE and looks.is_queue_of_n8n(target):
        return Done("", Outcome.REFUSED, _N8N)
    keys = BullKeys(target.ref.base)
    word = b"paused" if act is Act.PAUSE else b"resumed"
    answer = scripted.run("turn-queue", target, (keys.meta, keys.named(word)), (word,))
    if decode.name(answer[0]) == "unchanged":
        return Done("", Outcome.UNCHANGED, "It is paused already." if act is Act.PAUSE else "It is not paused.")
    return Done("", Outcome.DONE)


def cancel(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """A wish: no version of Bull can be told from outside to give a job up. What is said is the job's id, as JSON."""

    def each(job: Seen) -> Iterable[Part]:
        return (*scripted.shown(job), raw(job.token or ""), json.dumps(job.id))

    against = scripted.misplaced(jobs, (State.ACTIVE,))
    settings = (CHANNEL + raw(target.ref.base),)
    return Call("wish-cancel", target, settings, each, ACTIVE_CHUNK).told(jobs, _heard, against)


def _heard(job: Seen, answer: Sequence[Any]) -> Done:
    done = scripted.read(job, answer)
    if done.outcome is not Outcome.DONE:
        return done
    heard = decode.count(answer[1]) or 0
    if not heard:
        return Done(job.id, Outcome.REFUSED, _NOBODY, State.ACTIVE)
    listeners = "1 listener was told" if heard == 1 else f"{heard} listeners were told"
    return Done(job.id, Outcome.DONE, f"{listeners}; the worker that runs it ends it.", State.ACTIVE)
