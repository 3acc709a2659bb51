"""Reads of one queue that Bull and BullMQ share; what differs is in the layout."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.backends.base import TEXT_LIMIT, Command, CommandClient, FollowUpRead
from recovery.backends.redis_common import job_details, job_logs, job_schedulers, metrics, row_refresh, script_reads
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.layout import Layout, QueueContext
from recovery.backends.redis_common.paging import pages, search
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.jobs import Job, JobRow, JobRowPage, JobSearchSlice, JobState, LogPage, SchedulerRow


class KeyspaceReader:
    """Reader of both libraries. Stateless, so one instance serves all queues and threads."""

    layout: Layout

    def age_plan(self, ref: QueueRef, id: str) -> Command:
        return b"HMGET", Keys(ref.base).job(encode_name(id)), b"timestamp", b"processedOn", b"delay"

    def page(
        self,
        wire: CommandClient,
        ref: QueueRef,
        state: JobState,
        *,
        cursor: str = "",
        size: int = 25,
        oldest_first: bool | None = None,
        by_script: bool = False,
    ) -> JobRowPage:
        place = self.layout.place(state)
        if place is None:
            return JobRowPage((), 0)
        return pages.read(
            wire,
            self._scene(ref),
            place,
            cursor=cursor,
            size=size,
            oldest_first=oldest_first,
            by_script=by_script,
        )

    def following(
        self, wire: CommandClient, ref: QueueRef, wanted: Sequence[tuple[str, JobState]]
    ) -> FollowUpRead | None:
        return script_reads.ScriptedFollowUp(wire, self._scene(ref), wanted)

    def row(self, wire: CommandClient, ref: QueueRef, id: str) -> JobRow:
        return job_details.row(wire, self._scene(ref), encode_name(id))

    def rows(
        self, wire: CommandClient, ref: QueueRef, wanted: Sequence[tuple[str, JobState]], *, by_script: bool = False
    ) -> tuple[JobRow | None, ...]:
        return row_refresh.read(wire, self._scene(ref), wanted, by_script=by_script)

    def job(self, wire: CommandClient, ref: QueueRef, id: str, *, limit: int = TEXT_LIMIT) -> Job:
        return job_details.job(wire, self._scene(ref), encode_name(id), limit)

    def logs(self, wire: CommandClient, ref: QueueRef, id: str, *, start: int = 0, size: int = 200) -> LogPage:
        return job_logs.read(wire, self._scene(ref), encode_name(id), start, size)

    def schedulers(self, wire: CommandClient, ref: QueueRef, *, size: int = 100) -> tuple[SchedulerRow, ...]:
        return job_schedulers.read(wire, self._scene(ref), size)

    def metrics(
        self, wire: CommandClient, ref: QueueRef, now: int, *, minutes: int
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
        return metrics.read(wire, Keys(ref.base), now, minutes)

    def search(
        self,
        wire: CommandClient,
        ref: QueueRef,
        state: JobState,
        *,
        name: str = "",
        data: str = "",
        cursor: str = "",
        budget: int = 1000,
    ) -> JobSearchSlice:
        place = self.layout.place(state)
        if place is None:
            return JobSearchSlice()
        return search.run(
            wire, self._scene(ref), place, search.SearchTerms.of(name, data), cursor=cursor, budget=budget
        )

    def _scene(self, ref: QueueRef) -> QueueContext:
        return QueueContext(ref, Keys(ref.base), self.layout)
