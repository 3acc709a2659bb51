"""Reads one page of a state: its ids, their rows, and once more the rows that seem wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recovery.backends.base import READ_LIMIT, Command, CommandClient
from recovery.backends.redis_common import decode, job_location, job_rows, locks, script_reads
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging.windows import window
from recovery.domain.identifiers import decode_name, encode_name
from recovery.domain.jobs import JobRow, JobRowPage, JobState

MANY = 8  # rows from which on their part of a list is read again, in place of a search for each
MARGIN = 500  # ids on both sides of that part: jobs come and go meanwhile


def read(
    wire: CommandClient,
    context: QueueContext,
    place: StatePlace,
    *,
    cursor: str,
    size: int,
    oldest_first: bool | None,
    by_script: bool = False,
) -> JobRowPage:
    """Reads a page in three round trips; two more when a row looks wrong. `by_script`: scripts read what they can of
    it.
    """
    size = max(1, min(size, READ_LIMIT))
    ascending = not place.newest_first if oldest_first is None else oldest_first
    seen = window(wire, context, place, cursor=cursor, size=size, oldest_first=ascending)
    known = script_reads.look_at_page(wire, context, place, seen, from_tail=ascending) if by_script else {}
    left = [entry for entry in seen.entries if decode_name(entry.id) not in known]
    known |= {row.id: row for row in job_rows.read(wire, context, place.state, left)}
    found = [known[decode_name(entry.id)] for entry in seen.entries]
    return JobRowPage(tuple(drop_moved(wire, context, place, found)), seen.total, seen.next, seen.previous)


def drop_moved(wire: CommandClient, context: QueueContext, place: StatePlace, found: Sequence[JobRow]) -> list[JobRow]:
    """Leaves out the jobs that left the place between the reading of its ids and of their fields.

    Such a job looks like one without a hash, or like an active one without a lock: exactly what a person is
    alarmed by. So these are asked again, lock first: no lock and then still active is what the row says.
    """
    doubtful = [row for row in found if _is_doubtful(row) and not row.is_one_moment]
    looks = _second_look(wire, context, place, doubtful) if doubtful else ()
    again = dict(zip((row.id for row in doubtful), looks, strict=True))
    kept = (again.get(row.id, row) for row in found)
    return [row for row in kept if row is not None and not job_rows.is_old_marker(context, row)]


def _is_doubtful(row: JobRow) -> bool:
    return row.missing or (row.state is JobState.ACTIVE and row.lock is None and row.lock_known)


def _second_look(
    wire: CommandClient, context: QueueContext, place: StatePlace, found: Sequence[JobRow]
) -> list[JobRow | None]:
    """Reads doubtful rows again; None for one that has left. A refused read leaves the row as it was."""
    ids = [encode_name(row.id) for row in found]
    stretch = _stretch(wire, context, place, ids)
    looks = [command for id in ids for command in locks.ask(context.keys, id)]
    there = [stretch] if stretch else [job_location.ask(context, place, id) for id in ids]
    replies = wire.call([*looks, *there])
    answers = replies[len(looks) :]
    here = _listed(wire, context, place, ids, answers[0]) if stretch else _named(ids, answers)
    pairs = zip(replies[: len(looks) : 2], replies[1 : len(looks) : 2], strict=True)
    return [_again(row, *lock) if id in here else None for row, id, lock in zip(found, ids, pairs, strict=True)]


def _stretch(wire: CommandClient, context: QueueContext, place: StatePlace, ids: Sequence[bytes]) -> Command | None:
    """Returns the part of a list where many of a page stand. One by one, a hundred deep ones cost 50 ms."""
    if not place.is_list or len(ids) < MANY:
        return None
    ends = [
        decode.count(reply) for reply in wire.call([job_location.ask(context, place, id) for id in (ids[0], ids[-1])])
    ]
    at = sorted(end for end in ends if end is not None)
    if len(at) < 2 or at[1] - at[0] > 2 * MARGIN:
        return None
    return b"LRANGE", place.key(context.keys), max(0, at[0] - MARGIN), at[1] + MARGIN


def _listed(
    wire: CommandClient, context: QueueContext, place: StatePlace, ids: Sequence[bytes], stretch: Any
) -> set[bytes]:
    """Returns the ids that are in the list: others move it, so what is not in the stretch may still be in the list."""
    here = set(decode.items(stretch))
    missed = [id for id in ids if id not in here]
    if not missed:
        return here
    return here | _named(missed, wire.call([job_location.ask(context, place, id) for id in missed]))


def _named(ids: Sequence[bytes], replies: Sequence[Any]) -> set[bytes]:
    return {id for id, reply in zip(ids, replies, strict=True) if reply is not None}


def _again(row: JobRow, token: Any, ttl: Any) -> JobRow:
    lock, lock_known = locks.read(token, ttl)
    return replace(row, lock=lock, lock_known=lock_known) if row.state is JobState.ACTIVE else row
