"""Searches jobs: by id at once in any number of queues, by name or data slice by slice in one queue.

A slice is the work of one request and holds no state on the server: without a next request the search has ended.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobRow, JobSearchSlice, JobState
from recovery.errors import Missing, StoreError
from recovery.reads.queues import job_details, job_lists
from recovery.reads.queues.fail_fast_client import fail_fast_client
from recovery.reads.queues.job_lists import Queue
from recovery.stores.registry import registry
from recovery.stores.sql.sql_client import SqlClient
from recovery.stores.state.shared_read import windows

EXAMINED_LIMIT = 100_000  # jobs one search examines: more is a task for a database
FOUND_LIMIT = 500  # rows one search shows: more matches need a better term
NAME_BUDGET = 2_000  # jobs a slice: names are short, some 20 ms in the store
DATA_BUDGET = 400  # jobs a slice: payloads are compared here, up to 64 KB each
TERM_LIMIT = 200  # characters of a term
ID_HITS = 50  # queues whose job of this id is shown; small numbers exist in every queue
ROWS_SECONDS = 0.5  # for reading their rows: each takes some round trips, and the store may be far away
ASKED_AT_ONCE = 16  # deployments: more threads than that gain nothing for one answer
_BETWEEN = "!"  # occurs in no reader's cursor


@dataclass(frozen=True, slots=True)
class JobIdHits:
    """Jobs with one id. `silent`: deployments that did not answer, so that an empty result is not taken for certain."""

    rows: tuple[JobRow, ...]
    searched: int
    silent: tuple[str, ...] = ()
    more: int = 0


@dataclass(frozen=True, slots=True)
class JobSearchTerms:
    """Terms of a search in one queue; `states` are searched in this order."""

    states: tuple[JobState, ...]
    name: str = ""
    data: str = ""


@dataclass(frozen=True, slots=True)
class SearchSlice:
    """Result of one slice, with the progress of the whole search. `next` is "" when the search is over."""

    rows: tuple[JobRow, ...]
    examined: int
    found: int
    skipped: int
    next: str = ""
    stopped: str = ""  # why it ended early

    @property
    def progress(self) -> str:
        """Counters that the next request passes back to go on counting."""
        return f"{self.examined}.{self.found}.{self.skipped}"


def by_id(id: str, queues: Sequence[Queue]) -> JobIdHits:
    """Finds jobs by id: one EXISTS per queue, one round trip per deployment, in parallel; then reads the rows."""
    rows: list[JobRow] = []
    silent: list[str] = []
    more, end = 0, time.monotonic() + ROWS_SECONDS
    for deployment, having in _everywhere(id, queues).items():
        if isinstance(having, StoreError):
            silent.append(deployment)
            continue
        try:
            read, left = _rows(id, having.queues, ID_HITS - len(rows), end)
        except StoreError:
            silent.append(deployment)
            continue
        rows += read
        more += left
        if having.is_partial:
            silent.append(deployment)
    return JobIdHits(tuple(rows), len(queues), tuple(silent), more)


@dataclass(frozen=True, slots=True)
class _Having:
    """Queues of one deployment that have a key of this name. `is_partial`: some queues could not be checked."""

    queues: list[Queue]
    is_partial: bool


def _everywhere(id: str, queues: Sequence[Queue]) -> dict[str, _Having | StoreError]:
    """Asks all deployments in parallel, so that several unavailable ones cost the time of one."""
    ordered = sorted(queues, key=lambda queue: queue.ref)
    groups = {name: list(group) for name, group in groupby(ordered, key=lambda queue: queue.ref.deployment)}
    if len(groups) < 2:
        return {name: _having(id, name, group) for name, group in groups.items()}
    with ThreadPoolExecutor(max_workers=min(len(groups), ASKED_AT_ONCE)) as pool:
        return dict(zip(groups, pool.map(lambda name: _having(id, name, groups[name]), groups), strict=True))


def _having(id: str, deployment: str, queues: list[Queue]) -> _Having | StoreError:
    wire = registry().wire(deployment)
    if isinstance(wire, SqlClient):
        return _having_rows(id, queues)
    keys, spare = tuple(encode_name(f"{queue.ref.base}:{id}") for queue in queues), fail_fast_client(wire)
    try:
        found = windows.get(("exists", deployment, keys), lambda: spare.call([("EXISTS", key) for key in keys]))
    except StoreError as error:
        return error
    having = [queue for queue, exists in zip(queues, found, strict=True) if exists == 1]
    return _Having(having, any(isinstance(reply, Exception) for reply in found))


def _having_rows(id: str, queues: Sequence[Queue]) -> _Having | StoreError:
    """Checks job tables, each with one lookup by primary key. An unreadable table hides no row of another."""
    having, trouble = [], None
    for queue in queues:
        try:
            job_details.row(queue, id)
        except Missing:
            continue
        except StoreError as error:
            trouble = error
        else:
            having.append(queue)
    return trouble if trouble and not having else _Having(having, trouble is not None)


def _rows(id: str, queues: Sequence[Queue], most: int, end: float) -> tuple[list[JobRow], int]:
    """Reads the rows; returns them and how many queues were left out for lack of time or room."""
    rows: list[JobRow] = []
    for number, queue in enumerate(queues):
        if len(rows) >= most or time.monotonic() > end:
            return rows, len(queues) - number
        with suppress(Missing):  # a key of the queue's own, or gone meanwhile
            rows.append(job_details.row(queue, id))
    return rows, 0


def look(queue: Queue, terms: JobSearchTerms, *, cursor: str = "", progress: str = "") -> SearchSlice:
    """Searches the next slice: one budget of jobs, out of one state or several small ones."""
    examined, found, skipped = _counted(progress)
    budget = DATA_BUDGET if terms.data else NAME_BUDGET
    rows: list[JobRow] = []
    end = min(examined + budget, EXAMINED_LIMIT)
    index, inner = _place(cursor, terms)
    while index < len(terms.states) and examined < end and found < FOUND_LIMIT:
        part = _part(queue, terms, index, inner, end - examined)
        fresh = part.rows[: FOUND_LIMIT - found]
        rows += fresh
        examined, found, skipped = examined + part.examined, found + len(fresh), skipped + part.skipped
        index, inner = (index, part.next) if part.next else (index + 1, "")
    is_over = index >= len(terms.states)
    stopped = "" if is_over else _limit(examined, found)
    following = "" if is_over or stopped else f"{index}{_BETWEEN}{inner}"
    return SearchSlice(tuple(rows), examined, found, skipped, following, stopped)


def _part(queue: Queue, terms: JobSearchTerms, index: int, inner: str, budget: int) -> JobSearchSlice:
    return queue.reader.search(
        queue.wire, queue.ref, terms.states[index], name=terms.name, data=terms.data, cursor=inner, budget=budget
    )


def total(queue: Queue, terms: JobSearchTerms) -> int | None:
    """Returns how many jobs the search covers by the snapshot's counts; None if one state is unknown."""
    if queue.sample is None:
        return None
    counts = [job_lists.count_of(queue.sample, state) for state in terms.states]
    return None if None in counts else sum(count or 0 for count in counts)


def _place(cursor: str, terms: JobSearchTerms) -> tuple[int, str]:
    """Decodes a cursor into the index of a state and the reader's cursor in it. An invalid one counts as the start."""
    index, _, inner = cursor.partition(_BETWEEN)
    if not index.isascii() or not index.isdigit() or len(index) > 3:
        return 0, ""
    return min(int(index), len(terms.states)), inner


def _counted(progress: str) -> tuple[int, int, int]:
    parts = progress.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return 0, 0, 0
    return int(parts[0]), int(parts[1]), int(parts[2])


def _limit(examined: int, found: int) -> str:
    if found >= FOUND_LIMIT:
        return f"Stopped at {FOUND_LIMIT:,} matches. Use a longer search term."
    if examined >= EXAMINED_LIMIT:
        return f"Stopped after {EXAMINED_LIMIT:,} jobs. The rest was not searched."
    return ""
