"""Requeues, fails and releases jobs that are active and whose worker is gone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from recovery.backends.base import Target
from recovery.backends.bull import looks, retention, scripted
from recovery.backends.bull.scripted import TOGETHER, Call
from recovery.backends.shared import decode
from recovery.connections.scripts import Part
from recovery.domain.acting import Done, Options, Outcome, Seen
from recovery.domain.jobs import State
from recovery.domain.refs import raw

REASON = "job stalled more than allowable limit"  # what the library writes into the job
PUBLISHED = "job stalled more than maxStalledCount"  # what it publishes, and what n8n's main listens to

STEP = 10  # jobs of one run: each is searched in `active`, half a millisecond when it stands in the midst of 50,000

_N8N = "It is a job of n8n: its workflow would run a second time from its start. That needs your explicit consent."
_NO_LOCK = "No lock was shown: there is none to release."
_HAD_LOCK = "It had a lock when it was shown: wait until the lock expires, or release it."


def requeue(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    refused = _unfit(jobs, options) | _without_consent(target, jobs, options)
    settings = (scripted.counting(options),)
    return Call("requeue-jobs", target, settings, scripted.shown, STEP, TOGETHER).do(jobs, refused)


def fail(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    """Fails jobs as the library's own stalled check does, and publishes its very words, whatever the reason."""
    refused = _unfit(jobs, options)
    kept = {job.id: retention.of_failed(wishes) for job, wishes in zip(jobs, looks.options(target, jobs), strict=True)}

    def each(job: Seen) -> Iterable[Part]:
        keep, age = kept[job.id]
        return (*scripted.shown(job), _message(job.id), _or_empty(keep), _or_empty(age))

    settings = (raw(target.ref.base), now, options.message or REASON, scripted.counting(options))
    return Call("fail-jobs", target, settings, each, STEP).told(jobs, _told, refused)


def release(target: Target, jobs: Sequence[Seen], options: Options, now: int) -> tuple[Done, ...]:
    refused = scripted.refuse((job for job in jobs if not job.token), _NO_LOCK) | _not_active(jobs)
    if options.requeue:
        refused |= _without_consent(target, jobs, options)
    settings = (scripted.counting(options) if options.requeue else "",)

    def each(job: Seen) -> Iterable[Part]:
        return (*scripted.shown(job), raw(job.token or ""))

    return Call("release-locks", target, settings, each, STEP, TOGETHER).do(jobs, refused)


def _told(job: Seen, answer: Sequence[Any]) -> Done:
    done = scripted.read(job, answer)
    return replace(done, heard=decode.count(answer[1])) if done.outcome is Outcome.DONE else done


def _unfit(jobs: Sequence[Seen], options: Options) -> dict[str, Done]:
    """Returns refusals for jobs without proof. Bull takes a job, then locks it: one read without a lock is no proof."""
    refused = {} if options.is_late else scripted.refuse(jobs, scripted.UNPROVEN)
    return refused | scripted.refuse((job for job in jobs if job.token is not None), _HAD_LOCK) | _not_active(jobs)


def _not_active(jobs: Sequence[Seen]) -> dict[str, Done]:
    return scripted.misplaced(jobs, (State.ACTIVE,))


def _without_consent(target: Target, jobs: Sequence[Seen], options: Options) -> dict[str, Done]:
    if options.consent:
        return {}
    theirs = zip(jobs, looks.of_n8n(target, jobs), strict=True)
    return scripted.refuse((job for job, is_its in theirs if is_its), _N8N)


def _message(id: str) -> bytes:
    """Returns the library's own text, blank for blank; the library itself breaks on an id with a quote in it."""
    return raw(f'{{"jobId":{json.dumps(id, ensure_ascii=False)}, "val": "{PUBLISHED}"}}')


def _or_empty(number: int | None) -> Part:
    return "" if number is None else number
