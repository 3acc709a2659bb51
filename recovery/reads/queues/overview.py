"""Builds the queue table: the rows of a snapshot that match a query, worst first by default."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from urllib.parse import urlencode

from recovery.domain.queues.health import QueueProblemKind, failure_rate, problem_kind, ready, tallies
from recovery.domain.queues.types import DeploymentSample, QueueSample, Snapshot
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.reads.queues import filters

CHUNK = 100  # rows rendered at once: three screens of a large monitor
LOOK_LIFE = 30_000  # ms: an older check of the active jobs does not show their present state
GROUP_DELIMITERS = (":", "-", ".", "_", "/")


class OverviewColumn(StrEnum):
    """Columns that the table can be sorted by."""

    WORST = "worst"
    NAME = "name"
    STATE = "state"
    WAITING = "waiting"
    ACTIVE = "active"
    DELAYED = "delayed"
    FAILED = "failed"
    STUCK = "stuck"
    OLDEST = "oldest"
    WORKERS = "workers"
    STALLED_CHECK = "stalled-check"
    RATE = "rate"
    FAILING = "failing"

    @property
    def falls_first(self) -> bool:
        """True if the first click sorts descending: not for names, workers and the time to the next stalled check."""
        return self not in (OverviewColumn.NAME, OverviewColumn.WORKERS, OverviewColumn.STALLED_CHECK)


_COLUMNS = {column.value: column for column in OverviewColumn}


@dataclass(frozen=True, slots=True)
class OverviewQuery:
    """Query of the table, as the page's URL has it."""

    filter: str = ""
    deployment: str = ""  # the one chosen in the bar; "" is all
    sort: OverviewColumn = OverviewColumn.WORST
    falling: bool = True
    group: str = ""
    start: int = 0

    @classmethod
    def parse(cls, params: Mapping[str, str]) -> OverviewQuery:
        """Parses the URL; an invalid value falls back to the default, because a link must always open."""
        written = params.get("sort", "")
        name = written.removeprefix("-")
        sort = _COLUMNS.get(name, OverviewColumn.WORST)
        start = params.get("from", "")
        group = params.get("group", "")
        return cls(
            filter=params.get("q", "").strip()[: filters.FILTER_LIMIT],
            deployment=params.get("deployment", ""),
            sort=sort,
            falling=written.startswith("-") if name in _COLUMNS else sort.falls_first,
            group=group if group in GROUP_DELIMITERS else "",
            start=int(start) // CHUNK * CHUNK if start.isascii() and start.isdigit() and len(start) < 7 else 0,
        )

    def url(self) -> str:
        """Returns the query string of this page, without default values."""
        sort = f"{'-' * self.falling}{self.sort.value}"
        parts = {
            "deployment": self.deployment,
            "q": self.filter,
            "sort": "" if self.sort is OverviewColumn.WORST and self.falling else sort,
            "group": self.group,
            "from": str(self.start) if self.start else "",
        }
        written = urlencode({key: value for key, value in parts.items() if value})
        return f"?{written}" if written else "?"

    def by(self, column: OverviewColumn) -> OverviewQuery:
        """Returns the query that a click on this column's head requests."""
        falling = not self.falling if column is self.sort else column.falls_first
        return replace(self, sort=column, falling=falling, start=0)

    @property
    def plain(self) -> OverviewQuery:
        """Same query without its filter."""
        return replace(self, filter="", start=0)

    def at(self, start: int) -> OverviewQuery:
        return replace(self, start=start)


@dataclass(frozen=True, slots=True)
class OverviewRow:
    """Row of the table: a queue. `reason` is why its numbers are old or missing; "" if they are current."""

    sample: QueueSample
    kind: QueueProblemKind | None
    ready: int | None
    failing: float | None
    rate: int | None  # jobs finished in the newest closed minute
    stuck: int | None = None  # stuck jobs by the last check of active jobs; None: not checked
    reason: str = ""
    group: str = ""


@dataclass(frozen=True, slots=True)
class OverviewTotals:
    """Sums over the readable queues. `unknown`: queues that could not be read and are in no sum."""

    waiting: int | None
    active: int | None
    delayed: int | None
    failed: int | None
    workers: int | None
    paused: int
    unknown: int
    stuck: int | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """Chunk of the table, and the totals above it."""

    rows: tuple[OverviewRow, ...]
    matched: int
    total: int
    totals: OverviewTotals
    problem: str = ""

    def following(self, query: OverviewQuery) -> int | None:
        """Returns where the next chunk starts; None after the last."""
        after = query.start + CHUNK
        return after if after < self.matched else None


def view(snapshot: Snapshot, query: OverviewQuery, inbox: StuckInbox | None = None) -> Overview:
    """Builds one chunk of the table; O(n log n) in the queues, without any store. `inbox` None: stuck is unknown."""
    rows, totals = _judge(_Identity(snapshot, inbox))
    if query.deployment:
        rows = tuple(row for row in rows if row.sample.ref.deployment == query.deployment)
        totals = _totals(rows)
    chosen = filters.parse(query.filter)
    matching = [row for row in rows if chosen.holds(row.sample)] if chosen.terms else list(rows)
    ordered = _grouped(_sorted(matching, query), query.group)
    return Overview(
        rows=tuple(ordered[query.start : query.start + CHUNK]),
        matched=len(matching),
        total=len(rows),
        totals=totals,
        problem=chosen.problem,
    )


@lru_cache(maxsize=2)  # the newest snapshot, and the one that a request in flight still holds
def _judge(pair: _Identity) -> tuple[tuple[OverviewRow, ...], OverviewTotals]:
    snapshot, inbox = pair.snapshot, pair.inbox
    found = {deployment.name: deployment for deployment in snapshot.deployments}
    known = tallies(inbox)
    is_fresh = inbox is not None and snapshot.taken_at - inbox.checked_at <= LOOK_LIFE
    judged = tuple(
        _row(
            queue,
            found.get(queue.ref.deployment),
            snapshot.taken_at,
            known.get(queue.ref) if is_fresh else None,
            is_fresh,
        )
        for queue in snapshot.queues
    )
    return judged, _totals(judged)


class _Identity:
    """Cache key of a snapshot and an inbox, compared by identity: a hash of them costs more than building the rows."""

    __slots__ = ("inbox", "snapshot")

    def __init__(self, snapshot: Snapshot, inbox: StuckInbox | None) -> None:
        self.snapshot = snapshot
        self.inbox = inbox

    def __hash__(self) -> int:
        return hash((id(self.snapshot), id(self.inbox)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.snapshot is self.snapshot and other.inbox is self.inbox


def _row(
    sample: QueueSample, deployment: DeploymentSample | None, now: int, tally: StuckTally | None, is_fresh: bool
) -> OverviewRow:
    reason = sample.error or (deployment.error if deployment else "")
    return OverviewRow(
        sample=sample,
        kind=None if reason else problem_kind(sample, now, tally),
        ready=ready(sample.counts),
        failing=failure_rate(sample),
        rate=_rate(sample),
        stuck=None if reason or not is_fresh else _stuck(sample, tally),
        reason=reason,
    )


def _stuck(sample: QueueSample, tally: StuckTally | None) -> int | None:
    """Returns how many jobs are stuck: 0 without active jobs; None if there are active jobs that were not checked."""
    if tally is not None:
        return tally.stuck
    return 0 if sample.counts.active == 0 else None


def _rate(sample: QueueSample) -> int | None:
    completed, failed = sample.rates.completed[:1], sample.rates.failed[:1]
    if not completed or not failed or completed[0] is None or failed[0] is None:
        return None
    return completed[0] + failed[0]


def _totals(rows: Sequence[OverviewRow]) -> OverviewTotals:
    good = [row for row in rows if not row.reason]
    samples = [row.sample for row in good]
    return OverviewTotals(
        waiting=_sum(row.ready for row in good),
        active=_sum(sample.counts.active for sample in samples),
        delayed=_sum(sample.counts.delayed for sample in samples),
        failed=_sum(sample.counts.failed for sample in samples),
        workers=_sum(sample.workers for sample in samples),
        paused=sum(sample.is_paused is True for sample in samples),
        unknown=len(rows) - len(good),
        stuck=_sum(row.stuck for row in good),
    )


def _sum(counts: Iterable[int | None]) -> int | None:
    """Returns the sum of the known counts; None if none is known."""
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


# -- order


def _sorted(rows: list[OverviewRow], query: OverviewQuery) -> list[OverviewRow]:
    """Sorts the rows. Unknown values come last in either direction; equal rows keep the order of their names."""
    rows.sort(key=lambda row: (row.sample.ref.base, row.sample.ref.deployment))
    if query.sort is OverviewColumn.NAME:
        return rows[::-1] if query.falling else rows
    key = _KEYS[query.sort]
    known = [row for row in rows if key(row) is not None]
    unknown = [row for row in rows if key(row) is None]
    known.sort(key=lambda row: key(row) or 0, reverse=query.falling)
    return known + unknown


def _worst(row: OverviewRow) -> float:
    """Ranks a row by its kind of problem, unreadable queues after the gravest. Counts alone do not move a row."""
    if row.sample.error:
        return 10 - QueueProblemKind.ABANDONED - 0.5
    return 0.0 if row.kind is None else 10 - row.kind


def _all(row: OverviewRow) -> int | None:
    counts = row.sample.counts
    parts = (row.ready, counts.active, counts.delayed, counts.waiting_children, counts.failed)
    return None if row.ready is None else sum(part or 0 for part in parts)


_KEYS: dict[OverviewColumn, Callable[[OverviewRow], float | None]] = {
    OverviewColumn.WORST: _worst,
    OverviewColumn.STATE: _all,
    OverviewColumn.WAITING: lambda row: row.ready,
    OverviewColumn.ACTIVE: lambda row: row.sample.counts.active,
    OverviewColumn.DELAYED: lambda row: row.sample.counts.delayed,
    OverviewColumn.FAILED: lambda row: row.sample.counts.failed,
    OverviewColumn.STUCK: lambda row: row.stuck,
    # The largest age first: the smallest time.
    OverviewColumn.OLDEST: lambda row: None if row.sample.oldest_waiting_at is None else -row.sample.oldest_waiting_at,
    OverviewColumn.WORKERS: lambda row: row.sample.workers,
    OverviewColumn.STALLED_CHECK: lambda row: row.sample.stalled_check_ttl,
    OverviewColumn.RATE: lambda row: row.rate,
    OverviewColumn.FAILING: lambda row: row.failing,
}


# -- groups


def _grouped(rows: list[OverviewRow], delimiter: str) -> list[OverviewRow]:
    """Puts rows of one group together; the groups keep the order of their first rows."""
    if not delimiter:
        return rows
    groups: dict[str, list[OverviewRow]] = {}
    for row in rows:
        name = group_of(row.sample.ref.label, delimiter)
        groups.setdefault(name, []).append(replace(row, group=name))
    return [row for group in groups.values() for row in group]


def group_of(label: str, delimiter: str) -> str:
    """Returns a name without its last part: `bull:mail:eu` by ":" is `bull:mail`; "" if there is no delimiter."""
    return label.rpartition(delimiter)[0]
