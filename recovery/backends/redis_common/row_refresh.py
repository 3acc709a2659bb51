"""Reads jobs again that were shown before: first where they were expected, which costs least."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from recovery.backends.base import CommandClient
from recovery.backends.redis_common import decode, job_details, job_location, job_rows, script_reads
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging import pages
from recovery.backends.redis_common.paging.types import JobIdEntry
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobRow, JobState
from recovery.errors import JobMissing

# Jobs that left their place are looked for everywhere, one by one, some milliseconds each in long lists.
SEARCHED = 50

Wanted = Sequence[tuple[str, JobState]]


def read(
    wire: CommandClient, context: QueueContext, wanted: Wanted, *, by_script: bool = False
) -> tuple[JobRow | None, ...]:
    """Returns one row a job, in their order; None: it is gone. Four round trips for all that are where they were; one
    for a few that may be read by a script.
    """
    is_few = by_script and len(wanted) <= script_reads.JOBS
    found = script_reads.look(wire, context, wanted) if is_few and wanted else {}
    for place in context.layout.places:
        left = [id for id, state in wanted if state is place.state and id not in found]
        found |= _there(wire, context, place, left)
    moved = [id for id, _ in wanted if id not in found]
    found |= {id: _anywhere(wire, context, id) for id in moved[:SEARCHED]}
    found |= _lost(wire, context, moved[SEARCHED:])
    return tuple(found[id] for id, _ in wanted)


def _there(
    wire: CommandClient, context: QueueContext, place: StatePlace, ids: Sequence[str]
) -> dict[str, JobRow | None]:
    """Returns the rows of those that are at this place."""
    if not ids:
        return {}
    replies = wire.call([job_location.ask(context, place, encode_name(id)) for id in ids])
    here = [
        JobIdEntry(encode_name(id), None if place.is_list else decode.score(reply))
        for id, reply in zip(ids, replies, strict=True)
        if reply is not None and not isinstance(reply, Exception)
    ]
    read = job_rows.read(wire, context, place.state, here)
    return {row.id: row for row in pages.drop_moved(wire, context, place, read)}


def _anywhere(wire: CommandClient, context: QueueContext, id: str) -> JobRow | None:
    with suppress(JobMissing):
        return job_details.row(wire, context, encode_name(id))
    return None


def _lost(wire: CommandClient, context: QueueContext, ids: Sequence[str]) -> dict[str, JobRow | None]:
    """Returns the rows of the rest: that they moved is known, and not where to."""
    read = job_rows.read(wire, context, JobState.UNKNOWN, [JobIdEntry(encode_name(id)) for id in ids])
    return {row.id: None if row.missing else row for row in read}
