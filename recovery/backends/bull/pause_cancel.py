"""Pauses and resumes a queue, and asks the worker of a job to stop it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recovery.backends.base import ACTIVE_CHUNK, Target
from recovery.backends.bull import job_fields, scripts
from recovery.backends.bull.keys import BullKeys
from recovery.backends.bull.n8n_detection import ABORT, OLD_ABORT
from recovery.backends.bull.scripts import BullScriptCall
from recovery.backends.redis_common import decode
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.cluster import ClusterClient
from recovery.stores.redis.scripts import Part

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


def pause_or_resume(act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
    """Pauses or resumes a queue; a pause of a queue of n8n is refused."""
    if act is Action.PAUSE and job_fields.is_queue_of_n8n(target):
        return ScriptOutcome("", Outcome.REFUSED, _N8N)
    keys = BullKeys(target.ref.base)
    word = b"paused" if act is Action.PAUSE else b"resumed"
    answer = scripts.run("turn-queue", target, (keys.meta, keys.named(word)), (word,))
    if decode.name(answer[0]) == "unchanged":
        return ScriptOutcome(
            "", Outcome.UNCHANGED, "It is paused already." if act is Action.PAUSE else "It is not paused."
        )
    return ScriptOutcome("", Outcome.DONE)


def cancel(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    """Cancels jobs of n8n by its own abort. Of others it publishes a request: no Bull can be told to stop a job."""
    theirs = zip(jobs, job_fields.are_n8n_jobs(target, jobs), strict=True)
    of_n8n = [job for job, is_its in theirs if is_its]
    answers = {done.id: done for done in _abort(target, of_n8n)}
    return _wish(target, jobs, answers)


def _wish(
    target: Target, jobs: Sequence[ExpectedJob], answers: Mapping[str, ScriptOutcome]
) -> tuple[ScriptOutcome, ...]:
    """Publishes each job's id as JSON. Those that have an answer already are not asked again."""

    def each(job: ExpectedJob) -> Iterable[Part]:
        return (*scripts.comparison_args(job), encode_name(job.token or ""), json.dumps(job.id))

    against = {**scripts.misplaced(jobs, (JobState.ACTIVE,)), **answers}
    settings = (CHANNEL + encode_name(target.ref.base),)
    return BullScriptCall("wish-cancel", target, settings, each, ACTIVE_CHUNK).told(jobs, _heard, against)


def _abort(target: Target, jobs: Sequence[ExpectedJob]) -> tuple[ScriptOutcome, ...]:
    """Writes and publishes what `job.progress({"kind": "abort-job"})` does."""

    def each(job: ExpectedJob) -> Iterable[Part]:
        told = (json.dumps({"jobId": job.id, "progress": word}, separators=(",", ":")) for word in (OLD_ABORT, ABORT))
        return (*scripts.comparison_args(job), encode_name(job.token or ""), *told)

    def told(job: ExpectedJob, answer: Sequence[Any]) -> ScriptOutcome:
        done = scripts.read(job, answer)
        return _aborting(done, answer[1], is_counted=is_counted) if done.outcome is Outcome.DONE else done

    is_counted = not isinstance(target.wire, ClusterClient)  # there only the listeners of one node are
    channel = BullKeys(target.ref.base).named(b"progress")
    settings = (channel, json.dumps(ABORT, separators=(",", ":")), "" if is_counted else "anyway")
    against = scripts.misplaced(jobs, (JobState.ACTIVE,))
    return BullScriptCall("abort-jobs", target, settings, each, ACTIVE_CHUNK).told(jobs, told, against)


def _aborting(job: ScriptOutcome, heard: Any, *, is_counted: bool) -> ScriptOutcome:
    if is_counted and not decode.count(heard):
        return ScriptOutcome(job.id, Outcome.REFUSED, _NO_N8N, JobState.ACTIVE)
    return ScriptOutcome(job.id, Outcome.DONE, _ABORTING, JobState.ACTIVE)


def _heard(job: ExpectedJob, answer: Sequence[Any]) -> ScriptOutcome:
    done = scripts.read(job, answer)
    if done.outcome is not Outcome.DONE:
        return done
    heard = decode.count(answer[1]) or 0
    if not heard:
        return ScriptOutcome(job.id, Outcome.REFUSED, _NOBODY, JobState.ACTIVE)
    listeners = "1 listener was notified" if heard == 1 else f"{heard} listeners were notified"
    return ScriptOutcome(job.id, Outcome.DONE, f"{listeners}; the worker that runs it stops it.", JobState.ACTIVE)
