"""Requeues, fails and releases jobs that are active and whose worker is gone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from recovery.backends.base import Target
from recovery.backends.bull import job_fields, scripts
from recovery.backends.bull.scripts import TOGETHER, BullScriptCall
from recovery.backends.redis_common import decode
from recovery.domain.actions.types import ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part

# -- remove on fail
# Reads how many failed jobs a job's own options want to be kept when it fails. `removeOnFail` is true or false, a
# number of jobs, or an object with `count` and `age` in seconds. What it means is taken from where the library fails
# a job that was handled: its stalled check, when told to keep none, wipes all failed jobs (`0`) or keeps the job for
# ever (`{"count": 0}`).


class Retention(NamedTuple):
    """Failed jobs to keep. `keep` None: all; 0: not even this one. `age` in ms; None: however old."""

    keep: int | None = None
    age: int | None = None


def parse_retention(options: Mapping[str, Any]) -> Retention:
    """Returns what `removeOnFail` says; what cannot be understood keeps everything."""
    written = options.get("removeOnFail")
    if written is True:
        return Retention(0)
    if isinstance(written, dict):
        age = _number(written.get("age"))
        return Retention(_count(written.get("count")), None if age is None else int(age * 1000))
    return Retention(_count(written))


def _count(written: Any) -> int | None:
    number = _number(written)
    return None if number is None else int(number)


def _number(written: Any) -> float | None:
    is_number = isinstance(written, (int, float)) and not isinstance(written, bool)
    return written if is_number and 0 <= written < 2**53 else None


# -- recover


REASON = "job stalled more than allowable limit"  # what the library writes into the job
PUBLISHED = "job stalled more than maxStalledCount"  # what it publishes, and what n8n's main listens to

STEP = 10  # jobs of one run: each is searched in `active`, half a millisecond when it stands in the midst of 50,000

_N8N = "It is a job of n8n: its workflow would run a second time from its start. That needs your explicit consent."
_NO_LOCK = "No lock was shown: there is none to release."
_HAD_LOCK = "It had a lock when it was shown: wait until the lock expires, or release it."


def requeue(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    refused = _unfit(jobs, options) | _without_consent(target, jobs, options)
    settings = (scripts.counting(options),)
    return BullScriptCall("requeue-jobs", target, settings, scripts.comparison_args, STEP, TOGETHER).do(jobs, refused)


def fail(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    """Fails jobs as the library's own stalled check does, and publishes its very words, whatever the reason."""
    refused = _unfit(jobs, options)
    kept = {
        job.id: parse_retention(written) for job, written in zip(jobs, job_fields.options(target, jobs), strict=True)
    }

    def each(job: ExpectedJob) -> Iterable[Part]:
        keep, age = kept[job.id]
        return (*scripts.comparison_args(job), _message(job.id), _or_empty(keep), _or_empty(age))

    settings = (encode_name(target.ref.base), now, options.message or REASON, scripts.counting(options))
    return BullScriptCall("fail-jobs", target, settings, each, STEP).told(jobs, _told, refused)


def release(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    refused = scripts.refuse((job for job in jobs if not job.token), _NO_LOCK) | _not_active(jobs)
    if options.requeue:
        refused |= _without_consent(target, jobs, options)
    settings = (scripts.counting(options) if options.requeue else "",)

    def each(job: ExpectedJob) -> Iterable[Part]:
        return (*scripts.comparison_args(job), encode_name(job.token or ""))

    return BullScriptCall("release-locks", target, settings, each, STEP, TOGETHER).do(jobs, refused)


def _told(job: ExpectedJob, answer: Sequence[Any]) -> ScriptOutcome:
    done = scripts.read(job, answer)
    return replace(done, heard=decode.count(answer[1])) if done.outcome is Outcome.DONE else done


def _unfit(jobs: Sequence[ExpectedJob], options: ActionOptions) -> dict[str, ScriptOutcome]:
    """Returns refusals for jobs without proof. Bull takes a job, then locks it: one read without a lock is no proof."""
    refused = {} if options.is_late else scripts.refuse(jobs, scripts.UNPROVEN)
    return refused | scripts.refuse((job for job in jobs if job.token is not None), _HAD_LOCK) | _not_active(jobs)


def _not_active(jobs: Sequence[ExpectedJob]) -> dict[str, ScriptOutcome]:
    return scripts.misplaced(jobs, (JobState.ACTIVE,))


def _without_consent(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions) -> dict[str, ScriptOutcome]:
    if options.consent:
        return {}
    theirs = zip(jobs, job_fields.are_n8n_jobs(target, jobs), strict=True)
    return scripts.refuse((job for job, is_its in theirs if is_its), _N8N)


def _message(id: str) -> bytes:
    """Returns the library's own text, blank for blank; the library itself breaks on an id with a quote in it."""
    return encode_name(f'{{"jobId":{json.dumps(id, ensure_ascii=False)}, "val": "{PUBLISHED}"}}')


def _or_empty(number: int | None) -> Part:
    return "" if number is None else number
