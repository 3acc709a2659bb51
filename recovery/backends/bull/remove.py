"""Removes jobs, one by one or in bounded steps, and restores them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from recovery.backends.base import ACTIVE_CHUNK, MOVE_CHUNK, Command, Target
from recovery.backends.bull import scripts, versions
from recovery.backends.bull.keys import BullKeys
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import StatePlace
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import (
    Action,
    ActionOptions,
    ExpectedJob,
    Outcome,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.identifiers import decode_name, encode_name
from recovery.domain.jobs import JobState
from recovery.stores.redis.scripts import Part

# -- clean candidates
# Finds the jobs that a clean or a drain takes next: in windows, from the end where the oldest are.


_WINDOW = 500  # ids of one read
_FIELDS = (b"processedOn", b"attemptsMade", b"stalledCounter", b"finishedOn", b"timestamp")
_SCHEDULED = b"repeat:"


@dataclass(slots=True)
class CleanCandidates:
    """Jobs found so far; `is_all` when there is nothing more to be found."""

    jobs: list[ExpectedJob] = field(default_factory=list)
    skipped: int = 0
    is_all: bool = True
    are_sorted: bool = True  # all of them in sorted sets


def for_clean(target: Target, options: ActionOptions, now: int, budget: int) -> CleanCandidates:
    """Returns jobs of one state that are old enough: since they finished, else since they were started, else added."""
    found = CleanCandidates()
    if options.state is not None:
        _collect(found, target, (options.state,), budget, now - options.older_than if options.older_than else None)
    return found


def for_drain(target: Target, options: ActionOptions, budget: int) -> CleanCandidates:
    """Returns all that wait to run, and the delayed ones when asked to."""
    found = CleanCandidates()
    _collect(found, target, (JobState.WAITING, JobState.PAUSED), budget, None)
    if options.delayed and found.is_all:
        _collect(found, target, (JobState.DELAYED,), budget, None)
    return found


def _collect(
    found: CleanCandidates, target: Target, states: Iterable[JobState], budget: int, until: int | None
) -> None:
    for state in states:
        place = versions.LAYOUT.place(state)
        if place is None:
            continue
        found.are_sorted = found.are_sorted and not place.is_list
        for ids in _windows(target, place, until):
            for job in _fit(found, target, state, ids, until):
                if len(found.jobs) == budget:
                    found.is_all = False
                    return
                found.jobs.append(job)


def _windows(target: Target, place: StatePlace, until: int | None) -> Iterator[list[bytes]]:
    """Yields ids, next to run or oldest first. Sets of finished jobs are sorted by when they finished."""
    key = place.key(BullKeys(target.ref.base))
    by_score = place.state.is_finished and until is not None
    for first in count(0, _WINDOW):
        if place.is_list:
            ids = _read(target, (b"LRANGE", key, -first - _WINDOW, -first - 1))[::-1]
        elif by_score:
            ids = _read(target, (b"ZRANGEBYSCORE", key, b"-inf", until or 0, b"LIMIT", first, _WINDOW))
        else:
            ids = _read(target, (b"ZRANGE", key, first, first + _WINDOW - 1))
        yield ids
        if len(ids) < _WINDOW:
            return


def _read(target: Target, command: Command) -> list[bytes]:
    (reply,) = target.wire.call([command])
    raise_if_refused(reply, target.ref, b"LRANGE" if command[0] == b"LRANGE" else b"ZRANGE")
    return decode.items(reply)


def _fit(
    found: CleanCandidates, target: Target, state: JobState, ids: Sequence[bytes], until: int | None
) -> Iterator[ExpectedJob]:
    """Yields jobs that have no lock, are no schedule's next run, and are old enough; counts the others as skipped."""
    keys = BullKeys(target.ref.base)
    commands = [
        command
        for id in ids
        for command in (
            (b"EXISTS", keys.lock(id)),
            (b"HMGET", keys.job(id), *_FIELDS),
            (b"ZCOUNT", keys.repeat, *_slot(id)),
        )
    ]
    replies = target.wire.call(commands) if commands else []
    for number, id in enumerate(ids):
        locked, fields, planned = replies[3 * number : 3 * number + 3]
        processed, attempts, stalls, finished, added = (decode.integer(one) for one in decode.fields(fields, 5))
        when = next((time for time in (finished, processed, added) if time is not None), 0)
        is_young = until is not None and not state.is_finished and when > until
        is_planned = decode.count(planned) and not state.is_finished
        if locked or is_planned or is_young:
            found.skipped += 1
        else:
            moment = decode.moment(decode.fields(fields, 5)[0])
            yield ExpectedJob(decode_name(id), state, None, moment, attempts or 0, None, stalls or 0)


def _slot(id: bytes) -> tuple[bytes, bytes]:
    """Returns when a repeatable job's run is due, as its id tells: `repeat:<hash>:<ms>`. Of others: never."""
    due = id.rpartition(b":")[2]
    return (due, due) if id.startswith(_SCHEDULED) and due.isdigit() else (b"inf", b"(inf")


# -- remove


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
