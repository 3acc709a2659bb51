"""Reads what an action has to know of a few jobs, in one round trip: scripts that only read, one a job, in one batch.

Plain commands take three to six round trips for the same, because a list is searched before a job is read, a text is
measured before it is fetched, and what looks wrong is asked again. A script sees one moment, so nothing moves between
its steps. A user who may act may run scripts; where one is refused the caller falls back on plain commands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from recovery.backends.base import Command, CommandClient, Target
from recovery.backends.redis_common import decode, job_rows, locks
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging.types import IdWindow, JobIdEntry
from recovery.backends.redis_common.payloads import ByteBudget, fetch, lengths
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobRow, JobState
from recovery.stores.redis.scripts import Part, Script, script

JOBS = 10  # of an act, looked at by scripts; of more a few round trips do not matter
DEPTH = 100_000  # ids of a list that one script searches: 1 ms. What is longer is searched by a plain command.
PAGE_JOBS = 50  # of a page, looked at by one script: about 1 ms, in which no other client is served
TOGETHER = 2  # of these scripts on their way at once
MARGIN = 200  # ids on both sides of the part of a list that a script reads: jobs come and go meanwhile

_FOLDER = Path(__file__).parent / "lua" / "read"
_UNSEARCHED = -1

Run = tuple[Sequence[Part], Sequence[Part]]
Wanted = Sequence[tuple[str, JobState]]


def look_script() -> Script:
    return script(_FOLDER / "look-at-job.lua")


def look_runs(context: QueueContext, wanted: Wanted) -> list[Run]:
    """Returns keys and arguments of one read a job, first at the place where it is expected."""
    places = context.layout.places
    letters = "".join("l" if place.is_list else "z" for place in places)
    expected = {place.state: number for number, place in enumerate(places, start=1)}
    limits = (
        DEPTH,
        job_rows.TEXT_BYTES,
        job_rows.PAGE_BYTES,
        locks.TOKEN_BYTES,
        len(job_rows.NUMBERS),
        len(job_rows.TEXTS),
    )
    names = (*limits, *job_rows.NUMBERS, *job_rows.SIZES)
    own = [place.key(context.keys) for place in places]
    return [
        (
            (context.keys.job(encode_name(id)), context.keys.lock(encode_name(id)), *own),
            (encode_name(id), letters, expected.get(state, 0), *names),
        )
        for id, state in wanted
    ]


def look(wire: CommandClient, context: QueueContext, wanted: Wanted) -> dict[str, JobRow | None]:
    """Returns the jobs that a script could read; None: it is gone."""
    return dict(rows_from_replies(context, wanted, look_script().each(wire, look_runs(context, wanted))))


def look_at_page(
    wire: CommandClient, context: QueueContext, place: StatePlace, page: IdWindow, *, from_tail: bool
) -> dict[str, JobRow]:
    """Reads the jobs of a page that scripts find where it was read, each at one moment. The others are left out."""
    found: dict[str, JobRow] = {}
    names = (*job_rows.NUMBERS, *job_rows.SIZES)
    entries = page.entries
    left = job_rows.PAGE_BYTES * PAGE_JOBS // max(PAGE_JOBS, len(entries))
    limits = (job_rows.TEXT_BYTES, left, locks.TOKEN_BYTES, len(job_rows.NUMBERS), len(job_rows.TEXTS), len(names))
    parts = [(at, entries[at : at + PAGE_JOBS]) for at in range(0, len(entries), PAGE_JOBS)]
    runs: list[Run] = [
        (
            (
                place.key(context.keys),
                *chain.from_iterable((context.keys.job(id), context.keys.lock(id)) for id, _ in part),
            ),
            (*_stretch(place, page.start + at, len(part), from_tail), *limits, *names, *(id for id, _ in part)),
        )
        for at, part in parts
    ]
    look = script(_FOLDER / "look-at-page.lua")
    replies = [reply for at in range(0, len(runs), TOGETHER) for reply in look.each(wire, runs[at : at + TOGETHER])]
    for (_, part), reply in zip(parts, replies, strict=True):
        if isinstance(reply, Exception):
            continue
        for (id, _), answer in zip(part, reply, strict=True):
            row = _row(context, id, job_rows.ScriptJobReply(*answer), (place,)) if answer else None
            if row is not None:
                found[row.id] = row
    return found


def _stretch(place: StatePlace, first: int, count: int, from_tail: bool) -> tuple[str, int, int]:
    """Returns where a script searches for these ids of a list, which may have moved a little since it was read."""
    start, end = max(0, first - MARGIN), first + count + MARGIN
    if not place.is_list:
        return "z", 0, 0
    return ("l", -end, -(start + 1)) if from_tail else ("l", start, end - 1)


class ScriptedFollowUp:
    """Sends a read of some jobs behind each script, so that no round trip is spent on it; see `base.FollowUpRead`."""

    __slots__ = ("_commands", "_replies", "_scene", "_wanted", "_wire")

    def __init__(self, wire: CommandClient, context: QueueContext, wanted: Wanted) -> None:
        self._wire, self._scene, self._wanted = wire, context, wanted
        self._commands = look_script().commands(look_runs(context, wanted))
        self._replies: list[Any] = []

    def call(self, commands: Sequence[Command]) -> list[Any]:
        self._replies = []
        replies = self._wire.call([*commands, *self._commands])
        self._replies = replies[len(commands) :]
        return replies[: len(commands)]

    def rows(self) -> Mapping[str, JobRow | None]:
        return dict(rows_from_replies(self._scene, self._wanted, self._replies)) if self._replies else {}


def rows_from_replies(
    context: QueueContext, wanted: Wanted, replies: Sequence[Any]
) -> Iterator[tuple[str, JobRow | None]]:
    """Yields what the scripts of `look_runs` answered. A job that could not be read whole is left out."""
    for (id, _), reply in zip(wanted, replies, strict=True):
        if not isinstance(reply, Exception) and reply[0] != _UNSEARCHED:
            yield id, _row(context, encode_name(id), job_rows.ScriptJobReply(*reply), context.layout.places)


def _row(
    context: QueueContext, id: bytes, look: job_rows.ScriptJobReply, places: Sequence[StatePlace]
) -> JobRow | None:
    place = places[look.place - 1] if look.place else None
    entry = JobIdEntry(id, decode.score(look.score) if place and not place.is_list else None)
    row = job_rows.of_script(context, place.state if place else JobState.UNKNOWN, entry, look)
    is_gone = row.missing and (place is None or job_rows.is_old_marker(context, row))
    return None if is_gone else row


def fields(
    target: Target, ids: Sequence[bytes], names: Sequence[bytes], *, longest: int, most: int
) -> list[dict[bytes, bytes]]:
    """Returns these fields of each job: b"" for one that is too long, none where there is none or it may not be read.

    Of many jobs by plain commands, of which others wait less. Raises StoreError where no script may run.
    """
    jobs = [Keys(target.ref.base).job(id) for id in ids]
    if len(jobs) > JOBS:
        return [dict(_fields(names, reply)) for reply in _by_commands(target.wire, jobs, names, longest, most)]
    runs: list[Run] = [((job,), (longest, most, *names)) for job in jobs]
    replies = script(_FOLDER / "read-fields.lua").each(target.wire, runs)
    for reply in replies:
        raise_if_refused(reply, target.ref, b"EVALSHA")
    return [dict(_fields(names, reply)) for reply in replies]


def _by_commands(
    wire: CommandClient, jobs: Sequence[bytes], names: Sequence[bytes], longest: int, most: int
) -> Iterator[list[Any]]:
    """Yields what the script would say of each, in two round trips."""
    replies = wire.call([command for job in jobs for command in lengths(job, names)])
    sizes = [replies[at : at + len(names)] for at in range(0, len(replies), len(names))]
    fits = [tuple(ByteBudget(most, longest).affordable(names, some)) for some in sizes]
    wanted = [fetch(job, fit) for job, fit in zip(jobs, fits, strict=True) if fit]
    found = iter(wire.call(wanted) if wanted else ())
    for some, fit in zip(sizes, fits, strict=True):
        texts = dict(zip(fit, decode.fields(next(found), len(fit)), strict=True)) if fit else {}
        yield [texts.get(name, size or None) for name, size in zip(names, some, strict=True)]


def _fields(names: Sequence[bytes], reply: Any) -> Iterator[tuple[bytes, bytes]]:
    for name, value in zip(names, reply, strict=True):
        if type(value) is int:
            yield name, b""
        elif (text := decode.octets(value)) is not None:
            yield name, text
