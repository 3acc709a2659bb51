"""Reads of one queue that Bull and BullMQ share; what differs is in the layout."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.backends.base import TEXT_LIMIT, Command, CommandClient, FollowUpRead
from recovery.backends.redis_common import decode, job_details, job_schedulers, metrics, row_refresh, script_reads
from recovery.backends.redis_common.keys import Keys
from recovery.backends.redis_common.layout import Layout, QueueContext
from recovery.backends.redis_common.paging import pages, search
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.jobs import Job, JobRow, JobRowPage, JobSearchSlice, JobState, LogPage, SchedulerRow
from recovery.stores.redis.reply_limits import OversizedReply

# -- job logs
# Reads the lines a job wrote with `job.log`, oldest first.


PAGE = 1000  # lines at most in one read
# A list entry comes whole or not at all, and its length cannot be asked. So lines are read a few at a time, and no
# more of them once this many bytes have come; each is then cut to what a person reads.
PAGE_BYTES = 128 * 1024
_STEP = 50
_SINGLE = 5  # lines read one by one where a step of them is too long
LINE = 2000  # characters


def read(wire: CommandClient, context: QueueContext, id: bytes, start: int, size: int) -> LogPage:
    key = context.keys.logs(id)
    start, size = max(0, start), max(1, min(size, PAGE))
    (length,) = wire.call([(b"LLEN", key)])
    lines: list[bytes] = []
    weight = 0
    while len(lines) < size and weight < PAGE_BYTES:
        first = start + len(lines)
        step = min(_STEP, size - len(lines))
        (reply,) = wire.call([(b"LRANGE", key, first, first + step - 1)])
        if isinstance(reply, OversizedReply):
            lines += _one_by_one(wire, context, key, range(first, first + min(step, _SINGLE)))
            break
        raise_if_refused(reply, context.ref, b"LRANGE")
        more = decode.items(reply)
        lines += more
        weight += sum(map(len, more))
        if len(more) < step:
            break
    return LogPage(tuple(map(_line, lines)), start, decode.count(length))


def _one_by_one(wire: CommandClient, context: QueueContext, key: bytes, places: range) -> list[bytes]:
    """Reads a few lines of which one or more are too long to be read: that is said in their place."""
    replies = wire.call([(b"LINDEX", key, place) for place in places])
    for reply in replies:
        if not isinstance(reply, OversizedReply):
            raise_if_refused(reply, context.ref, b"LINDEX")
    return [str(reply).encode() if isinstance(reply, Exception) else reply for reply in replies if reply is not None]


def _line(raw: bytes) -> str:
    # A character has up to four bytes: cut before decoding, so that a huge line costs no huge string.
    written = raw[: LINE * 4].decode("utf-8", "replace")
    return written if len(written) <= LINE and len(raw) <= LINE * 4 else written[:LINE] + "…"


# -- reader


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
        return read(wire, self._scene(ref), encode_name(id), start, size)

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
