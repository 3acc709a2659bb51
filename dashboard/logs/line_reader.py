"""Reads the newest log lines once, for a page without scripts: from the sources, for a few seconds at most.

With scripts nothing of this is needed: the stream brings the lines (dashboard/logs/live/asgi.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from dashboard.logs.live import notices
from recovery.config import Config
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.errors import Missing
from recovery.logs import registry as logs_registry
from recovery.logs.base import LogReader
from recovery.stores.state import async_client

LINES = 200
SECONDS = 3.0  # for all sources together; a page that takes longer is taken for broken
_VALUES = 50  # of one label
_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LogLineRow:
    at: str
    level: str
    origin: str
    text: str
    left_out: int


@dataclass(frozen=True, slots=True)
class LogSourceProblem:
    source: str
    text: str
    advice: str


@dataclass(frozen=True, slots=True)
class LogRowsPage:
    """Log lines, oldest first; `labels`: the values to choose from, each NAME=VALUE."""

    lines: tuple[LogLineRow, ...] = ()
    labels: tuple[str, ...] = ()
    troubles: tuple[LogSourceProblem, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines, labels and problem of one source."""

    lines: Sequence[LogLine] = ()
    labels: Sequence[str] = ()
    trouble: LogSourceProblem | None = None


def read_newest(config: Config, names: Sequence[str], query: LogQuery) -> LogRowsPage:
    """Reads the newest lines of these sources. Blocks; for a thread without an event loop."""
    return asyncio.run(_newest(config, names, query))


def reveal_line(config: Config, name: str, id: str, query: LogQuery) -> LogLine:
    """Returns one line with its secrets. Blocks. Raises Missing, StoreError, TimeoutError."""
    return asyncio.run(_revealed(config, name, id, replace(query, is_revealed=True)))


async def _revealed(config: Config, name: str, id: str, query: LogQuery) -> LogLine:
    client = async_client.state_client(config)
    opened = logs_registry.make_sources(config, client)
    try:
        if name not in opened:
            raise Missing("Unknown log source.")
        async with asyncio.timeout(SECONDS):
            page = await opened[name].around(id, query, lines=1)
    finally:
        for source in opened.values():
            await source.close()
        await client.aclose()
    for line in page.lines:
        if line.id == id:
            return line
    raise Missing("This line was deleted after the retention period.")


async def _newest(config: Config, names: Sequence[str], query: LogQuery) -> LogRowsPage:
    client = async_client.state_client(config)
    opened = logs_registry.make_sources(config, client)
    try:
        parts = await asyncio.gather(*(_part(opened[name], query) for name in names))
    finally:
        for source in opened.values():
            await source.close()
        await client.aclose()
    lines = sorted((line for part in parts for line in part.lines), key=lambda line: line.at)
    lines = lines[-LINES:]
    telling = _telling(lines)
    return LogRowsPage(
        lines=tuple(_row(line, telling) for line in lines),
        labels=tuple(sorted({label for part in parts for label in part.labels})),
        troubles=tuple(part.trouble for part in parts if part.trouble),
    )


async def _part(source: LogReader, query: LogQuery) -> _Part:
    try:
        async with asyncio.timeout(SECONDS):
            return _Part(await _lines(source, query), await _labels(source, query))
    except TimeoutError:
        return _Part(
            trouble=LogSourceProblem(source.label, "It does not answer in time.", "Narrow the time, and try again.")
        )
    except Exception as failure:  # noqa: BLE001 -- whatever it is: the lines of the other sources are shown
        note = notices.failure_notice(failure)
        return _Part(trouble=LogSourceProblem(source.label, note.text, note.advice))


async def _lines(source: LogReader, query: LogQuery) -> Sequence[LogLine]:
    """Searches a source, again and again while there is time, because one search takes a second at most."""
    found: list[LogLine] = []
    before, deadline = "", time.monotonic() + SECONDS / 2
    while len(found) < LINES and time.monotonic() < deadline:
        page = await source.search(query, before=before, limit=LINES - len(found))
        found[:0] = page.lines
        before = page.before
        if page.is_end or not before:
            break
    return found


async def _labels(source: LogReader, query: LogQuery) -> Sequence[str]:
    end = query.end or time.time_ns()
    known = await source.labels(query.start or end - 3600 * _NS, end)
    return [f"{name}={value}" for name, values in known.values.items() for value in list(values)[:_VALUES]]


def _telling(lines: Sequence[LogLine]) -> tuple[str, ...]:
    """Returns the labels by which these lines differ: only those are worth the room beside each."""
    seen: dict[str, set[str]] = {}
    for line in lines:
        for name, value in line.labels.items():
            seen.setdefault(name, set()).add(value)
    return tuple(name for name, values in seen.items() if len(values) > 1)


def _row(line: LogLine, telling: Sequence[str]) -> LogLineRow:
    return LogLineRow(
        at=_written(line.at),
        level=line.level.value if line.level else "",
        origin=" · ".join(line.labels[name] for name in telling if name in line.labels),
        text=line.text,
        left_out=line.left_out,
    )


def _written(at: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at // _NS, UTC):%m-%d %H:%M:%S}.{at % _NS // 1_000_000:03d} UTC"
    except (OverflowError, OSError, ValueError):
        return str(at)  # no calendar has it
