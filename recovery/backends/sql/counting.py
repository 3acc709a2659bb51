"""Samples a job table: how many rows are in each state, since when the oldest is, and which workers own them."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.backends.sql import rows, select, times
from recovery.backends.sql.select import Scene
from recovery.domain.counts import Counts
from recovery.domain.jobs import State

OWNERS = 200  # that are told; more do not fit on a page


@dataclass(frozen=True, slots=True)
class Owner:
    """Worker as its rows name it. `heard_at`: when one of its rows was renewed last, where they tell."""

    name: str
    rows: int
    heard_at: int | None = None


@dataclass(frozen=True, slots=True)
class TableSample:
    """Sample of a job table. `owners` None: the table does not tell whose a row is. `now` is the database's clock."""

    now: int
    counts: Counts
    oldest_waiting_at: int | None = None
    oldest_active_at: int | None = None
    owners: tuple[Owner, ...] | None = None
    read_only: str = ""  # why rows cannot be changed here; "": they can


def sample(scene: Scene) -> TableSample:
    """Runs five or six statements; with an index on the state column each is short."""
    (((now,)),) = scene.session.all(f"SELECT {times.clock(scene.session.engine)}")
    counts = Counts(
        waiting=select.count(scene, State.WAITING),
        active=select.count(scene, State.ACTIVE),
        prioritized=0,
        delayed=0,
        waiting_children=0,
        completed=select.count(scene, State.COMPLETED),
        failed=select.count(scene, State.FAILED),
        paused=0,
    )
    return TableSample(
        int(now),
        counts,
        _oldest(scene, State.WAITING, "queued_at") if counts.waiting else None,
        _oldest(scene, State.ACTIVE, "started_at") if counts.active else None,
        _owners(scene) if scene.column("owner") else None,
        "The database is configured to be read only." if scene.wire.database.read_only else "",
    )


def _oldest(scene: Scene, state: State, role: str) -> int | None:
    if not scene.column(role):
        return None
    name = getattr(scene.shape.table.columns, role)
    condition, values = scene.within(state)
    oldest = times.reading(scene.session.engine, f"MIN({scene.column(role)})", scene.shape.kind(name))
    replies = scene.session.all(f"SELECT {oldest} FROM {scene.place} WHERE {condition}", values)
    return times.read(replies[0][0], scene.shape.kind(name), scene.shape.table.timezone)


def _owners(scene: Scene) -> tuple[Owner, ...]:
    condition, values = scene.within(State.ACTIVE)
    owner, heartbeat = scene.column("owner"), scene.shape.table.columns.heartbeat
    kind = scene.shape.kind(heartbeat) if heartbeat else None
    heard = times.reading(scene.session.engine, f"MAX({scene.session.quoted(heartbeat)})", kind) if kind else "NULL"
    replies = scene.session.all(
        f"SELECT {owner}, COUNT(*), {heard} FROM {scene.place} WHERE {condition} AND {owner} IS NOT NULL"
        f" GROUP BY {owner} ORDER BY {owner} LIMIT {OWNERS}",
        values,
    )
    zone = scene.shape.table.timezone
    return tuple(
        Owner(rows.prose(name), int(count), times.read(at, kind, zone) if kind else None) for name, count, at in replies
    )
