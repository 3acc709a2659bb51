"""Updates the incidents of one deployment after each pass: keeps those of lost jobs, and resolves the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from recovery.backends.base import Wire
from recovery.domain.counts import Library
from recovery.domain.refs import JobRef, QueueRef
from recovery.domain.verdicts import Kind, Stuck
from recovery.reads import incidents
from recovery.reads.sightings import Mark
from recovery.scanners.watching.assess import Judged
from recovery.scanners.watching.casebook import Casebook, Seen
from recovery.scanners.watching.post import Post
from recovery.scanners.watching.resolution import Lost, resolved

RESOLVED = 5_000  # incidents resolved by one pass and queue: four short commands each


class Cases:
    def __init__(self, casebook: Casebook) -> None:
        self._book = casebook

    def has(self, ref: QueueRef) -> bool:
        return bool(self._book.cases(ref))

    def remind(self, ref: QueueRef, marks: Mapping[str, Mark]) -> None:
        self._book.remind(ref, marks)

    def forget(self) -> None:
        self._book.forget()

    def settle(
        self, wire: Wire, posts: Mapping[QueueRef, Post], found: Sequence[Judged], rows: tuple[Stuck, ...], now: int
    ) -> tuple[Stuck, ...]:
        """Updates incidents; returns the rows with their numbers. Raises StoreError, and Error of the database."""
        lines = {row.job: row for row in rows}
        by_queue: dict[QueueRef, list[Judged]] = {ref: [] for ref in posts}
        for one in found:
            if one.kind.is_lost:
                by_queue[one.row.ref.queue].append(one)
        for ref, mine in by_queue.items():
            if not posts[ref].found_error:
                self._keep(ref, mine, lines, now)
                self._close(wire, posts[ref], mine, now)
        return self._numbered(rows)

    def _keep(self, ref: QueueRef, mine: Sequence[Judged], lines: Mapping[JobRef, Stuck], now: int) -> None:
        seen, verdicts = [], {}
        for one in mine:
            # A job of an older library has no lock for a moment: that is no incident.
            if one.kind is Kind.UNLOCKED and one.sighting.looks < 2:
                continue
            line = lines.get(one.row.ref)
            if line:
                verdicts[one.row.id] = line.verdict
            who = (line.name, line.holder, line.server) if line else ()
            seen.append(Seen(one.row.id, one.mark.opened_at, one.kind, one.mark.signature, *who))
        if seen:
            self._book.keep(ref, seen, verdicts, now)

    def _close(self, wire: Wire, post: Post, mine: Sequence[Judged], now: int) -> None:
        here = {one.row.id for one in mine} | post.found_moved
        missing = list(self._book.miss(post.ref, here, now).items())[:RESOLVED]
        if not missing:
            return
        lost = [Lost(id, case.opened_at, case.signature, case.kind is Kind.WORKER_LOST) for id, case in missing]
        is_bullmq = post.sample.flavour.library is Library.BULLMQ
        length = post.memory.lock_length
        ends = resolved(wire, post.ref, lost, now, has_events=is_bullmq, lock_length=length)
        self._book.close(post.ref, ends, now)

    def _numbered(self, rows: tuple[Stuck, ...]) -> tuple[Stuck, ...]:
        ids: dict[QueueRef, list[str]] = {}
        for row in rows:
            if row.verdict.of_lock.is_lost:
                ids.setdefault(row.job.queue, []).append(row.job.id)
        numbers = {ref: incidents.open_numbers(ref, mine) for ref, mine in ids.items()}
        return tuple(replace(row, incident=numbers.get(row.job.queue, {}).get(row.job.id)) for row in rows)
