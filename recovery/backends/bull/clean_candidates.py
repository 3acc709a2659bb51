"""Finds the jobs that a clean or a drain takes next: in windows, from the end where the oldest are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from recovery.backends.base import Command, Target
from recovery.backends.bull import versions
from recovery.backends.bull.keys import BullKeys
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import StatePlace
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.actions.types import ActionOptions, ExpectedJob
from recovery.domain.identifiers import decode_name
from recovery.domain.jobs import JobState

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
