"""Pauses and resumes a queue, and asks the worker of a job to stop it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recovery.backends.base import ACTIVE_CHUNK, Target
from recovery.backends.bull import looks, scripted
from recovery.backends.bull.keys import BullKeys
from recovery.backends.bull.n8n import ABORT, OLD_ABORT
from recovery.backends.bull.scripted import Call
from recovery.backends.shared import decode
from recovery.connections.cluster import ClusterWire
from recovery.connections.scripts import Part
from recovery.domain.acting import Act, Done, Options, Outcome, Seen
from recovery.domain.jobs import State
from recovery.domain.refs import raw

CHANNEL = b"unstall:cancel:"  # and the queue's base: where a worker of the application's own may listen

_NOBODY = (
    "No worker listens for it, and Bull itself has no way to stop a running job from outside. "
    "docs/cancel.md has the ten lines that make a worker listen."
)
_NO_N8N = "No worker and no main process of n8n listens: no process was notified."
_ABORTING = "n8n was notified; the worker that runs it aborts it, and its execution becomes canceled."
_N8N = (
    "It is a queue of n8n, which marks the executions of a paused queue as crashed at its next recovery check; "
    "stop its workers instead."
)


def turn(act: Act, target: Target, options: Options, now: int) -> Done:
    """Pauses or resumes a queue; a pause of a queue of n8n is refused."""
    if act is Act.PAUSE and looks.is_queue_of_n8n(target):
        return Done("", Outcome.REFUSED, _N8N)
    keys = BullKeys(target.ref.base)
    word = b"paused" if act is Act.PAUSE else b"resumed"
    answer = scripted.run("turn-queue", target, (keys.meta, keys.named(word)), (word,))
    if decode.name(answer[0]) == "unchanged":
        return Done("", Outcome.UNCHANGED, "It is paused already." if act is Act.PAUSE else "It is not paused.")
    return Done("", Outcome.DONE)


def cancel(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """Cancels jobs of n8n by its own abort. Of others it publishes a request: no Bull can be told to stop a job."""
    theirs = zip(jobs, looks.of_n8n(target, jobs), strict=True)
    of_n8n = [job for job, is_its in theirs if is_its]
    answers = {done.id: done for done in _abort(target, of_n8n)}
    return _wish(target, jobs, answers)


def _wish(target: Target, jobs: Sequence[Seen], answers: Mapping[str, Done]) -> tuple[Done, ...]:
    """Publishes each job's id as JSON. Those that have an answer already are not asked again."""

    def each(job: Seen) -> Iterable[Part]:
        return (*scripted.shown(job), raw(job.token or ""), json.dumps(job.id))

    against = {**scripted.misplaced(jobs, (State.ACTIVE,)), **answers}
    settings = (CHANNEL + raw(target.ref.base),)
    return Call("wish-cancel", target, settings, each, ACTIVE_CHUNK).told(jobs, _heard, against)


def _abort(target: Target, jobs: Sequence[Seen]) -> tuple[Done, ...]:
    """Writes and publishes what `job.progress({"kind": "abort-job"})` does."""

    def each(job: Seen) -> Iterable[Part]:
        told = (json.dumps({"jobId": job.id, "progress": word}, separators=(",", ":")) for word in (OLD_ABORT, ABORT))
        return (*scripted.shown(job), raw(job.token or ""), *told)

    def told(job: Seen, answer: Sequence[Any]) -> Done:
        done = scripted.read(job, answer)
        return _aborting(done, answer[1], is_counted=is_counted) if done.outcome is Outcome.DONE else done

    is_counted = not isinstance(target.wire, ClusterWire)  # there only the listeners of one node are
    channel = BullKeys(target.ref.base).named(b"progress")
    settings = (channel, json.dumps(ABORT, separators=(",", ":")), "" if is_counted else "anyway")
    against = scripted.misplaced(jobs, (State.ACTIVE,))
    return Call("abort-jobs", target, settings, each, ACTIVE_CHUNK).told(jobs, told, against)


def _aborting(job: Done, heard: Any, *, is_counted: bool) -> Done:
    if is_counted and not decode.count(heard):
        return Done(job.id, Outcome.REFUSED, _NO_N8N, State.ACTIVE)
    return Done(job.id, Outcome.DONE, _ABORTING, State.ACTIVE)


def _heard(job: Seen, answer: Sequence[Any]) -> Done:
    done = scripted.read(job, answer)
    if done.outcome is not Outcome.DONE:
        return done
    heard = decode.count(answer[1]) or 0
    if not heard:
        return Done(job.id, Outcome.REFUSED, _NOBODY, State.ACTIVE)
    listeners = "1 listener was notified" if heard == 1 else f"{heard} listeners were notified"
    return Done(job.id, Outcome.DONE, f"{listeners}; the worker that runs it stops it.", State.ACTIVE)
