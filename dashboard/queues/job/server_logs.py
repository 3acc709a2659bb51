"""Finds the server logs of a job's run: on which server, in which sources, from when to when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.live import state_cache
from dashboard.logs import views as logs_views
from dashboard.logs.query import SOURCES
from recovery import config
from recovery.config.logs import FILES, STREAM, LogSource
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.stuck import holders
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import MINUTE, SECOND
from recovery.logs import shippers
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck.incidents import IncidentRecord

BEFORE = 30 * SECOND  # for what the worker logged before it took the job
AFTER = 2 * MINUTE  # behind the end: a worker that was killed may be started anew, and log why
UNSEEN = 5 * MINUTE  # before a lock was lost, of a run whose start is no longer recorded

NOT_YET = "No worker has taken this job yet, so there are no server logs for it."
NOBODY_KNOWS = "Worker's server unknown, so its log lines cannot be selected."
ONLY_HOST = "Its worker is connected from {}, but no monitor reports which server that is."
NO_SOURCE = "No log source labels lines by server, so the lines of {} cannot be separated from others."
ADVICE = "A monitor on the server reports both its workers and their logs: see docs/logs.md."


@dataclass(frozen=True, slots=True)
class JobRunPeriod:
    """Time of a run in ms; without an end it goes on. `marks`: what happened to the job, shown between the lines."""

    start: int
    end: int | None
    marks: tuple[tuple[int, str], ...]


def context(queue: Queue, row: JobRow, incidents: Sequence[IncidentRecord], now: int) -> Mapping[str, Any]:
    """Returns what the tab's template needs to show the lines, or why there are none."""
    asked = span(row, incidents, now)
    if asked is None:
        return {"problem": NOT_YET, "advice": ""}
    places, shipped = _places(queue, row, incidents, asked, now), shippers.servers()
    is_only = not places and len(shipped) == 1
    servers = tuple(shipped if is_only else (name for name in places if not _is_host(name)))
    if not servers:
        return {"problem": ONLY_HOST.format(places[0]) if places else NOBODY_KNOWS, "advice": ADVICE}
    sources = chosen(config.current().logs, servers, shipped)
    if not sources:
        return {"problem": NO_SOURCE.format(", ".join(map(printable, servers))), "advice": ADVICE}
    query = _query(sources, servers, asked)
    return logs_views.context(
        query,
        servers=[printable(name) for name in servers],
        is_only=is_only,
        from_sources=[source.label for source in sources],
        marks=asked.marks,
        is_live=asked.end is None,
        address=f"{reverse('logs')}?{query}",
    )


def span(row: JobRow, incidents: Sequence[IncidentRecord], now: int) -> JobRunPeriod | None:
    """Returns the time around the last run, or around the last loss if an earlier run had it; None: it never ran."""
    last = next(iter(incidents), None)
    started = row.processed_at
    ran_again = last is not None and started is not None and started > last.opened_at
    if last is not None and (started is None or ran_again):
        start = last.opened_at - UNSEEN
    elif started is not None:
        start = started - BEFORE
    else:
        return None
    end = _end(row, last, ran_again=ran_again)
    marks = [(started, "Picked up again" if ran_again else "Picked up")] if started is not None else []
    for incident in incidents:
        marks.append((incident.opened_at, "Worker lost" if incident.kind == VerdictKind.WORKER_LOST else "Lock lost"))
        marks += [(incident.closed_at, "Recovered")] if incident.closed_at is not None else []
    if row.state.is_finished and row.finished_at is not None:
        marks.append((row.finished_at, row.state.value.capitalize()))
    is_over = end is not None and end <= now
    return JobRunPeriod(
        max(0, start), end if is_over else None, tuple(sorted(mark for mark in marks if mark[0] >= start))
    )


def _end(row: JobRow, last: IncidentRecord | None, *, ran_again: bool) -> int | None:
    if row.state.is_finished:
        return None if row.finished_at is None else row.finished_at + AFTER
    if last is None or ran_again:
        return None
    if row.state is JobState.ACTIVE and last.closed_at is not None:
        return None  # its lock came back
    return (last.closed_at or last.opened_at) + AFTER


def chosen(known: Sequence[LogSource], servers: Sequence[str], shipped: frozenset[str]) -> list[LogSource]:
    """Returns sources that call servers by the same label, so that one query fits all: first those with lines."""
    able = [source for source in known if source.server_label and _may_have(source, servers)]
    able.sort(key=lambda source: source.kind == STREAM and not shipped.intersection(servers))
    return [source for source in able if source.server_label == able[0].server_label][:SOURCES]


def _may_have(source: LogSource, servers: Sequence[str]) -> bool:
    return source.kind != FILES or source.server in servers


def _places(queue: Queue, row: JobRow, incidents: Sequence[IncidentRecord], asked: JobRunPeriod, now: int) -> list[str]:
    """Returns where the job ran in this time, each a server or else a host."""
    found = [incident.server for incident in incidents if incident.opened_at >= asked.start]
    snapshot = state_cache.newest_snapshot()
    if snapshot is not None and row.processed_at is not None:
        found.append(
            holders.holder_server(row, stuck_queries.verdict_context_of(queue, snapshot, config.current(), now))
        )
    return list(dict.fromkeys(filter(None, found)))


def _is_host(name: str) -> bool:
    """Returns True for an IP address: a server's own name is none."""
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _query(sources: Sequence[LogSource], servers: Sequence[str], asked: JobRunPeriod) -> str:
    pairs = [
        *(("source", source.name) for source in sources),
        *(("label", f"{sources[0].server_label}={name}") for name in servers),
        ("from", str(asked.start)),
        *((("to", str(asked.end)),) if asked.end is not None else ()),
    ]
    return urlencode(pairs)
