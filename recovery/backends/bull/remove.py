"""Removes jobs, one by one or in bounded steps, and restores them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from recovery.backends.base import ACTIVE_CHUNK, MOVE_CHUNK, Target
from recovery.backends.bull import scripts
from recovery.backends.bull.clean_candidates import CleanCandidates, for_clean, for_drain
from recovery.backends.bull.keys import BullKeys
from recovery.backends.redis_common import decode
from recovery.domain.actions.types import (
    Action,
    ActionOptions,
    ExpectedJob,
    Outcome,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part

KEPT_LIMIT = 1024 * 1024  # bytes of one job that is kept for undo
_STEP = 4  # jobs of one run: each is searched in its list, about a millisecond in the midst of 100,000
_TAKEN = "Its id is in use again: the job that has it now would be overwritten."


def remove(target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int) -> tuple[ScriptOutcome, ...]:
    settings = (encode_name(target.ref.base), "yes" if options.is_late else "", KEPT_LIMIT)

    def each(job: ExpectedJob) -> Iterable[Part]:
        return (job.state.value, *scripts.comparison_args(job))

    return scripts.BullScriptCall("remove-jobs", target, settings, each, _STEP).told(jobs, _removed)


def take_away(act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
    """Cleans or drains one step. The library's own `empty` leaves the hashes of delayed jobs, logs and keys against
    doubles behind, and takes the pause off; its `clean` holds the server for the whole list. A repeatable job's next
    run stays: without it the schedule would never run again.

    A `limit` counts from this step on: the caller deducts what went before it asks again.
    """
    if options.limit:
        budget = min(budget, options.limit)
    found = for_clean(target, options, now, budget) if act is Action.CLEAN else for_drain(target, options, budget)
    done = [one for part in _chunks(found) for one in remove(target, part, options, now)]
    gone = [one for one in done if one.outcome is Outcome.DONE]
    is_finished = found.is_all or (options.limit > 0 and len(gone) >= options.limit) or not gone
    kept = tuple(one.kept for one in gone if one.kept)
    fenced = next((one.fenced for one in done if one.fenced is not None), None)
    skipped = found.skipped + sum(one.fenced is None for one in done) - len(gone)
    return RemovalStep(kept, len(gone), skipped, is_finished and fenced is None, fenced=fenced)


def put_back(target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
    """Restores a job without its deduplication key: the job that it kept away may be there by now."""
    keys, id = BullKeys(target.ref.base), encode_name(kept.id)
    dumps = dict(kept.dumps)
    args = (id, kept.state.value, kept.score, encode_name(kept.before), dumps[""], dumps.get(":logs", b""))
    answer = scripts.run("put-back-job", target, (keys.job(id), keys.lock(id), keys.logs(id)), args)
    if decode.name(answer[0]) == "taken":
        return ScriptOutcome(kept.id, Outcome.REFUSED, _TAKEN)
    return ScriptOutcome(kept.id, Outcome.DONE, state=JobState(decode.name(answer[1])))


def _chunks(found: CleanCandidates) -> Iterable[Sequence[ExpectedJob]]:
    """Yields jobs in the order they were found, few at a time where a list is searched for each."""
    size = MOVE_CHUNK if found.are_sorted else ACTIVE_CHUNK
    return (found.jobs[at : at + size] for at in range(0, len(found.jobs), size))


def _removed(job: ExpectedJob, answer: Sequence[Any]) -> ScriptOutcome:
    if decode.name(answer[0]) != "done":
        return scripts.read(job, answer)
    return ScriptOutcome(job.id, Outcome.DONE, kept=_kept(job, answer))


def _kept(job: ExpectedJob, answer: Sequence[Any]) -> UndoCopy | None:
    state, score, before, *dumps = answer[1:]
    if not dumps[0]:
        return None
    named = tuple((suffix, bytes(dump)) for suffix, dump in zip(("", ":logs"), dumps, strict=True) if dump)
    size = sum(len(dump) for _, dump in named)
    return UndoCopy(job.id, JobState(decode.name(state)), named, decode.name(score), decode.name(before), size)
