"""Finds rows left running by a worker that is gone, and puts them back to wait.

Two occasions. A worker starts and says so: then what it had before it died has no worker. Or time goes by: then it is a
row whose lease is over, whose heartbeat is old, or, where neither is kept, which has run too long.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recovery.backends.sql import select, swap
from recovery.backends.sql.rows import Look, held_until
from recovery.backends.sql.select import Scene
from recovery.backends.sql.swap import Move, Refusal
from recovery.backends.sql.write import ORPHANED, insist_on_writing, orphaned
from recovery.config import Table
from recovery.connections.sql import of
from recovery.domain.acting import Done, Outcome
from recovery.domain.ages import age
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import QueueRef
from recovery.errors import BadOrder

log = logging.getLogger(__name__)

WINDOW = 500  # running rows read at once
MOVED = "It was started again meanwhile."


@dataclass(frozen=True, slots=True)
class Occasion:
    """Reason for a sweep. `owner`: the worker that starts; "": the only one. `after`: ms beyond the limits."""

    is_start: bool = False
    owner: str = ""
    after: int = 0

    def evidence(self, table: Table, row: JobRow, now: int, began: int) -> str:
        """Returns why no worker holds this row, in one sentence; "" when one may hold it."""
        if self.is_start:
            return self._of_start(table, row, now, began)
        until, by = held_until(table, row)
        if until is None or until + self.after > now:
            return ""
        return _OVER[by](table, row, now)

    def _of_start(self, table: Table, row: JobRow, now: int, began: int) -> str:
        if row.processed_at is not None and row.processed_at > began:
            return ""  # taken after the start
        if self.owner:
            return f"Its owner {row.worker} has just started." if row.worker == self.owner else ""
        until, by = held_until(table, row)
        if until is not None and by != "age" and until > now:
            return ""  # a row of another worker that lives
        return "It was running when its worker started."


_OVER = {
    "lease": lambda table, row, now: f"Its lease ended {age(now - (row.lease_until or now))} ago.",
    "heartbeat": lambda table, row, now: f"Its last heartbeat was {age(now - (row.heartbeat_at or now))} ago.",
    "age": lambda table, row, now: f"It has been running for {age(now - (row.processed_at or now))}.",
}


@dataclass(frozen=True, slots=True)
class Orphan:
    """Row that no worker holds, as it was seen."""

    look: Look
    evidence: str


@dataclass(frozen=True, slots=True)
class Swept:
    """Result of a sweep. `left` are running rows that may be held, `refused` those that changed meanwhile."""

    requeued: int = 0
    failed: int = 0
    left: int = 0
    refused: int = 0
    more: bool = False  # it stopped at the most that it may do

    @property
    def words(self) -> str:
        said = f"{self.requeued:,} rows requeued, {self.failed:,} failed"
        said += f", {self.left:,} left running" if self.left else ""
        said += f", {self.refused:,} changed meanwhile" if self.refused else ""
        return said + (", and more are there" if self.more else "")


def check(table: Table, occasion: Occasion) -> None:
    """Raises BadOrder if the table has no owner column: then one owner's rows cannot be told from others'."""
    if occasion.owner and not table.columns.owner:
        raise BadOrder(f"The table {table.name} has no owner column, so a sweep cannot be limited to one owner.")


def orphans(wire: object, ref: QueueRef, occasion: Occasion) -> Iterator[tuple[int, tuple[Orphan, ...]]]:
    """Yields, window by window, how many running rows were read, and those that no worker holds. Raises StoreError.

    No connection is held between two windows.
    """
    last: Look | None = None
    began: int | None = None
    check(of(wire).table(ref.base), occasion)
    while True:
        with select.scene(wire, ref) as scene:
            looks = select.window(scene, State.ACTIVE, WINDOW, last)
            table = scene.shape.table
        began = began if began is not None or not looks else looks[0].now
        found = ((look, occasion.evidence(table, look.row, look.now, began or 0)) for look in looks)
        yield len(looks), tuple(Orphan(look, evidence) for look, evidence in found if evidence)
        if len(looks) < WINDOW:
            return
        last = looks[-1]


def take(scene: Scene, found: Sequence[Orphan], occasion: Occasion, error: str = ORPHANED) -> tuple[Done, ...]:
    """Recovers at most a chunk of them; one answer each, in their order. Raises StoreError with nothing of it done."""
    table = scene.shape.table
    seen = {one.look.row.id: one.look for one in found}

    def decide(look: Look) -> Move | Refusal:
        before = seen[look.row.id]
        if look.row.state is not State.ACTIVE:
            return Refusal(f"It is {look.row.state.value} now.")
        if (look.row.processed_at, look.row.attempts, look.row.worker) != _told(before):
            return Refusal(MOVED)
        if not occasion.evidence(table, look.row, look.now, before.now):
            return Refusal("A worker has renewed its lease or heartbeat meanwhile.")
        return orphaned(look, error)

    return swap.swap(scene, list(seen), decide)


def sweep(wire: object, ref: QueueRef, occasion: Occasion, most: int) -> Swept:
    """Recovers at most so many orphaned rows: a worker calls it at its start for its own table. The count is logged."""
    swept = Swept()
    insist_on_writing(of(wire))
    for looked, found in orphans(wire, ref, occasion):
        swept = replace(swept, left=swept.left + looked - len(found))
        for start in range(0, len(found), swap.CHUNK):
            chunk, room = found[start : start + swap.CHUNK], most - swept.requeued - swept.failed
            swept = replace(swept, more=swept.more or len(chunk) > room)
            if chunk[:room]:
                with select.scene(wire, ref) as scene:
                    swept = _added(swept, take(scene, chunk[:room], occasion))
        if swept.more:
            break
    log.info("sweep of %s: %s", ref, swept.words)
    return swept


def _told(look: Look) -> tuple[int | None, int, str]:
    return look.row.processed_at, look.row.attempts, look.row.worker


def _added(swept: Swept, done: Sequence[Done]) -> Swept:
    made = [one for one in done if one.outcome is Outcome.DONE]
    failed = sum(one.state is State.FAILED for one in made)
    return replace(
        swept,
        requeued=swept.requeued + len(made) - failed,
        failed=swept.failed + failed,
        refused=swept.refused + len(done) - len(made),
    )
