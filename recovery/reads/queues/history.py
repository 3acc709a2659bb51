"""Counts a queue's finished jobs over hours and days, and says in plain words where the numbers come from.

There are three sources. Each misses some jobs and none counts too many, so of two counts the larger is right:
1. the libraries' metrics, when the workers keep them: not the jobs that the stalled check failed;
2. our own record, made once a minute: not the time when the scheduler was not running;
3. the finished jobs still kept in Redis: not those removed, retried or trimmed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import redis

from recovery import shared_clock
from recovery.backends.registry import reader
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.time_series import (
    DAY,
    MINUTE,
    MINUTES,
    SPARK,
    TENS,
    UNKNOWN,
    FinishedRing,
    FinishedSeries,
    FinishedTally,
    FinishedWindow,
    by_minute,
)
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.errors import UnstallError
from recovery.reads.queues import finished_jobs
from recovery.reads.queues.fail_fast_client import fail_fast_client
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry, registry
from recovery.stores.state import state_keys

_LIBRARY = "Counted by the workers. Jobs failed by the stalled check and jobs removed by hand are not included."
_RECORDED = "Recorded by Unstall once a minute. Gaps: Unstall was not running or could not read the queue."
_KEPT = "Counted from the finished jobs that are still in Redis. Removed and retried ones are missing."
_FILLED = "Gaps in the workers’ metrics are filled from Unstall’s own record and from finished jobs still in Redis."
_LEFT = (
    "Jobs are removed as soon as they finish, so completed and failed cannot be distinguished: "
    "“left” counts the jobs that left the queue."
)
_ROWS = "Recorded by Unstall once a minute: the increase of done and failed rows. Gaps: Unstall was not running."
_NO_ROWS = "No data yet: nothing was recorded for this table."
_NOTHING = "No data yet: the workers keep no metrics, no finished jobs are kept, and nothing was recorded."


def series(
    ref: QueueRef,
    flavour: LibraryVersion,
    hours: int,
    *,
    now: int | None = None,
    stores: ConnectionRegistry | None = None,
) -> FinishedSeries:
    """Returns at most 240 closed buckets, oldest first. An unavailable store leaves gaps, and the note says so."""
    past = _Past(stores or registry(), ref, flavour, shared_clock.now() if now is None else now, hours)
    recorded, library = past.recorded(), past.library()
    known = [one.at_least(other) for one, other in zip(library, recorded, strict=True)]
    remains = past.kept(known)
    tallies = [one.or_else(other) for one, other in zip(known, remains, strict=True)]
    parts = {"library": library, "recorded": recorded, "kept": remains}
    source = next((name for name, part in parts.items() if _knows(part)), "")
    notes = _notes(source, _knows(recorded) or _knows(remains), tallies, is_table=past.is_table)
    window = past.window
    return FinishedSeries(window.points(tallies), window.step * MINUTE, source, " ".join([*notes, *past.troubles]))


def recent(
    store: redis.Redis, refs: Sequence[QueueRef], now: int, *, minutes: int = SPARK
) -> dict[QueueRef, dict[int, FinishedTally]]:
    """Reads the recorded minutes of many queues in one round trip; raises StoreError."""
    newest = now // MINUTE - 1
    return cells(store, MINUTES, refs, newest - minutes + 1, newest)


def cells(
    store: redis.Redis, ring: FinishedRing, refs: Sequence[QueueRef], first: int, last: int
) -> dict[QueueRef, dict[int, FinishedTally]]:
    """Reads the recorded cells of the periods first to last; a queue without records has none."""
    spans = ring.spans(first, last)
    with redis_errors.guarded(store):
        pipeline = store.pipeline(transaction=False)
        for ref in refs:
            for start, stop in spans:
                pipeline.getrange(state_keys.history(ref, ring.name), start, stop)
        parts = cast("list[bytes]", pipeline.execute())
    width = len(spans)
    strings = (b"".join(parts[index : index + width]) for index in range(0, len(parts), width))
    return {ref: ring.read(string, first, last) for ref, string in zip(refs, strings, strict=True)}


class _Past:
    """Reads one queue's history from each source in turn; errors are collected as sentences."""

    def __init__(
        self, stores: ConnectionRegistry, ref: QueueRef, flavour: LibraryVersion, now: int, hours: int
    ) -> None:
        self._stores = stores
        self._ref = ref
        self._flavour = flavour
        self._now = now
        self.is_table = flavour.library is QueueLibrary.TABLE
        self.window = FinishedWindow.of(hours, now)
        self.troubles: list[str] = []
        self._is_silent = False

    def recorded(self) -> list[FinishedTally]:
        window = self.window
        ring = MINUTES if window.size * window.step <= DAY else TENS
        first, last = ring.period(window.start), ring.period(window.end) - 1
        try:
            found = cells(self._stores.state(), ring, [self._ref], first, last)
        except UnstallError as error:
            self.troubles.append(f"The recorded data could not be read: {error}.")
            return self._nothing()
        return window.fold(found[self._ref], ring.unit)

    def library(self) -> list[FinishedTally]:
        try:
            found = reader(self._flavour).metrics(
                fail_fast_client(self._stores.wire(self._ref.deployment)),
                self._ref,
                self._now,
                minutes=self._now // MINUTE - self.window.start,
            )
        except UnstallError as error:
            self._is_silent = True
            self.troubles.append(f"The queue’s own store could not be read: {error}.")
            return self._nothing()
        return self.window.fold(by_minute(self._now, *found)) if found else self._nothing()

    def kept(self, known: Sequence[FinishedTally]) -> list[FinishedTally]:
        """Fills the gaps of the other two sources with counts of the finished jobs still kept in Redis."""
        gaps = [index for index, tally in enumerate(known) if tally.completed is None or tally.failed is None]
        filled = self._nothing()
        if not gaps or self._is_silent or self.is_table:
            return filled
        spans = [self.window.span(index) for index in gaps]
        try:
            replies = fail_fast_client(self._stores.wire(self._ref.deployment)).call(
                list(finished_jobs.plan(self._ref, spans))
            )
        except UnstallError as error:
            self.troubles.append(f"The queue’s own store could not be read: {error}.")
            return filled
        for index, tally in zip(gaps, finished_jobs.read_counts(spans, replies), strict=True):
            filled[index] = tally
        return filled

    def _nothing(self) -> list[FinishedTally]:
        return [UNKNOWN] * self.window.size


def _knows(tallies: Sequence[FinishedTally]) -> bool:
    return not all(tally.is_unknown for tally in tallies)


def _notes(source: str, is_filled: bool, tallies: Sequence[FinishedTally], *, is_table: bool) -> list[str]:
    if is_table:
        return [_ROWS if source else _NO_ROWS]
    texts = {"library": _LIBRARY, "recorded": _RECORDED, "kept": _KEPT, "": _NOTHING}
    notes = [texts[source]]
    if source == "library" and is_filled:
        notes.append(_FILLED)
    if any(tally.left and tally.completed is None for tally in tallies):
        notes.append(_LEFT)
    return notes
