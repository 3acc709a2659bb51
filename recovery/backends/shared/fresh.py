"""Reads jobs again that were shown before: first where they were expected, which costs least."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from recovery.backends.base import Wire
from recovery.backends.shared import decode, membership, pages, rows, script_reads, whole
from recovery.backends.shared.entries import Entry
from recovery.backends.shared.layout import Place, Scene
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import raw
from recovery.errors import JobMissing

# Jobs that left their place are looked for everywhere, one by one, some milliseconds each in long lists.
SEARCHED = 50

Wanted = Sequence[tuple[str, State]]


def read(wire: Wire, scene: Scene, wanted: Wanted, *, by_script: bool = False) -> tuple[JobRow | None, ...]:
    """Returns one row a job, in their order; None: it is gone. Four round trips for all that are where they were; one
    for a few that may be read by a script.
    """
    is_few = by_script and len(wanted) <= script_reads.JOBS
    found = script_reads.look(wire, scene, wanted) if is_few and wanted else {}
    for place in scene.layout.places:
        left = [id for id, state in wanted if state is place.state and id not in found]
        found |= _there(wire, scene, place, left)
    moved = [id for id, _ in wanted if id not in found]
    found |= {id: _anywhere(wire, scene, id) for id in moved[:SEARCHED]}
    found |= _lost(wire, scene, moved[SEARCHED:])
    return tuple(found[id] for id, _ in wanted)


def _there(wire: Wire, scene: Scene, place: Place, ids: Sequence[str]) -> dict[str, JobRow | None]:
    """Returns the rows of those that are at this place."""
    if not ids:
        return {}
    replies = wire.call([membership.ask(scene, place, raw(id)) for id in ids])
    here = [
        Entry(raw(id), None if place.is_list else decode.score(reply))
        for id, reply in zip(ids, replies, strict=True)
        if reply is not None and not isinstance(reply, Exception)
    ]
    read = rows.read(wire, scene, place.state, here)
    return {row.id: row for row in pages.settled(wire, scene, place, read)}


def _anywhere(wire: Wire, scene: Scene, id: str) -> JobRow | None:
    with suppress(JobMissing):
        return whole.row(wire, scene, raw(id))
    return None


def _lost(wire: Wire, scene: Scene, ids: Sequence[str]) -> dict[str, JobRow | None]:
    """Returns the rows of the rest: that they moved is known, and not where to."""
    read = rows.read(wire, scene, State.UNKNOWN, [Entry(raw(id)) for id in ids])
    return {row.id: None if row.missing else row for row in read}
