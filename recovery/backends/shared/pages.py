"""One page of a state: its ids, their rows, and a second look at those that seem wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recovery.backends.base import LIST_LIMIT, Command, Wire
from recovery.backends.shared import locks, membership, rows
from recovery.backends.shared.layout import Place, Scene
from recovery.backends.shared.windows import window
from recovery.domain.jobs import JobRow, Page, State
from recovery.domain.refs import raw


def read(wire: Wire, scene: Scene, place: Place, *, cursor: str, size: int, oldest_first: bool | None) -> Page:
    """Three round trips; two more when a row looks wrong."""
    size = max(1, min(size, LIST_LIMIT))
    seen = window(wire, scene, place, cursor=cursor, size=size, oldest_first=oldest_first)
    found = rows.read(wire, scene, place.state, seen.entries)
    return Page(tuple(settled(wire, scene, place, found)), seen.total, seen.next, seen.previous)


def settled(wire: Wire, scene: Scene, place: Place, found: Sequence[JobRow]) -> list[JobRow]:
    """Without the jobs that left the place between the reading of its ids and of their fields.

    Such a job looks like one without a hash, or like an active one that nobody holds: exactly what a person is
    alarmed by. So these are asked again, lock first: no lock and then still active is what the row says.
    """
    doubtful = [row for row in found if _is_doubtful(row)]
    if not doubtful:
        return list(found)
    again = dict(zip((row.id for row in doubtful), _second_look(wire, scene, place, doubtful), strict=True))
    kept = (again.get(row.id, row) for row in found)
    return [row for row in kept if row is not None and not _is_old_marker(scene, row)]


def _is_doubtful(row: JobRow) -> bool:
    return row.missing or (row.state is State.ACTIVE and row.lock is None and row.lock_known)


def _is_old_marker(scene: Scene, row: JobRow) -> bool:
    """BullMQ < 3.1.3 wrote `0` alone; an application may call a job so, and then there is a job."""
    return scene.layout.has_markers and row.missing and row.id == "0"


def _second_look(wire: Wire, scene: Scene, place: Place, found: Sequence[JobRow]) -> list[JobRow | None]:
    replies = wire.call([command for row in found for command in _ask(scene, place, raw(row.id))])
    width = locks.WIDTH + 1
    return [_verdict(row, replies[at * width : (at + 1) * width]) for at, row in enumerate(found)]


def _ask(scene: Scene, place: Place, id: bytes) -> tuple[Command, ...]:
    return (*locks.ask(scene.keys, id), membership.ask(scene, place, id))


def _verdict(row: JobRow, replies: Sequence[Any]) -> JobRow | None:
    """None when it has left. A refused look leaves the row as it was."""
    token, ttl, found = replies
    if found is None:
        return None
    lock, lock_known = locks.read(token, ttl)
    return replace(row, lock=lock, lock_known=lock_known) if row.state is State.ACTIVE else row
