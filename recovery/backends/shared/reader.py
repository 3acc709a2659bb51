"""Reads of one queue that Bull and BullMQ share; what differs is in the layout."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.backends.base import TEXT_LIMIT, Command, FollowUpRead, Wire
from recovery.backends.shared import fresh, logs, metrics, pages, schedulers, script_reads, search, whole
from recovery.backends.shared.keys import Keys
from recovery.backends.shared.layout import Layout, Scene
from recovery.domain.jobs import Found, Job, JobRow, LogPage, Page, SchedulerRow, State
from recovery.domain.refs import QueueRef, raw


class KeyspaceReader:
    """Reader of both libraries. Stateless, so one instance serves all queues and threads."""

    layout: Layout

    def age_plan(self, ref: QueueRef, id: str) -> Command:
        return b"HMGET", Keys(ref.base).job(raw(id)), b"timestamp", b"processedOn", b"delay"

    def page(
        self,
        wire: Wire,
        ref: QueueRef,
        state: State,
        *,
        cursor: str = "",
        size: int = 25,
        oldest_first: bool | None = None,
        by_script: bool = False,
    ) -> Page:
        place = self.layout.place(state)
        if place is None:
            return Page((), 0)
        return pages.read(
            wire,
            self._scene(ref),
            place,
            cursor=cursor,
            size=size,
            oldest_first=oldest_first,
            by_script=by_script,
        )

    def following(self, wire: Wire, ref: QueueRef, wanted: Sequence[tuple[str, State]]) -> FollowUpRead | None:
        return script_reads.ScriptedFollowUp(wire, self._scene(ref), wanted)

    def row(self, wire: Wire, ref: QueueRef, id: str) -> JobRow:
        return whole.row(wire, self._scene(ref), raw(id))

    def rows(
        self, wire: Wire, ref: QueueRef, wanted: Sequence[tuple[str, State]], *, by_script: bool = False
    ) -> tuple[JobRow | None, ...]:
        return fresh.read(wire, self._scene(ref), wanted, by_script=by_script)

    def job(self, wire: Wire, ref: QueueRef, id: str, *, limit: int = TEXT_LIMIT) -> Job:
        return whole.job(wire, self._scene(ref), raw(id), limit)

    def logs(self, wire: Wire, ref: QueueRef, id: str, *, start: int = 0, size: int = 200) -> LogPage:
        return logs.read(wire, self._scene(ref), raw(id), start, size)

    def schedulers(self, wire: Wire, ref: QueueRef, *, size: int = 100) -> tuple[SchedulerRow, ...]:
        return schedulers.read(wire, self._scene(ref), size)

    def metrics(
        self, wire: Wire, ref: QueueRef, now: int, *, minutes: int
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
        return metrics.read(wire, Keys(ref.base), now, minutes)

    def search(
        self,
        wire: Wire,
        ref: QueueRef,
        state: State,
        *,
        name: str = "",
        data: str = "",
        cursor: str = "",
        budget: int = 1000,
    ) -> Found:
        place = self.layout.place(state)
        if place is None:
            return Found()
        return search.run(wire, self._scene(ref), place, search.Wanted.of(name, data), cursor=cursor, budget=budget)

    def _scene(self, ref: QueueRef) -> Scene:
        return Scene(ref, Keys(ref.base), self.layout)
