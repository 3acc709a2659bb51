"""Log files on a disk, for tests of what reads them."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from recovery.config.logs import FILES, LogSource
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.logs.base import PLACE_LIMIT, LogGap
from recovery.logs.files import FilesSource

SECOND = 10**9
ALL = LogQuery()


def spec(*roots: Path, **more: Any) -> LogSource:
    server = more.get("server", "")
    return LogSource("app", "App", FILES, roots=tuple(map(str, roots)), server_label="server" if server else "", **more)


def stamped(at: int, text: str) -> bytes:
    """A line that begins with its moment, to the ns."""
    return f"{datetime.fromtimestamp(at // SECOND, UTC):%Y-%m-%dT%H:%M:%S}.{at % SECOND:09d}Z {text}\n".encode()


def add(path: Path, *texts: str, at: int | None = None) -> None:
    start = time.time_ns() if at is None else at
    with path.open("ab") as file:
        file.write(b"".join(stamped(start + number, text) for number, text in enumerate(texts)))


def told(lines: Iterable[LogLine]) -> list[str]:
    return [line.text.partition("Z ")[2] for line in lines]


async def newest(source: FilesSource, query: LogQuery = ALL) -> list[str]:
    return told((await source.search(query)).lines)


async def here(source: FilesSource) -> str:
    return (await source.read(ALL, after="")).after


async def after(source: FilesSource, place: str, limit: int = 1000) -> tuple[list[str], str, list[LogGap]]:
    """All that comes behind a place."""
    texts: list[str] = []
    gaps: list[LogGap] = []
    while True:
        page = await source.read(ALL, after=place, limit=limit)
        texts += told(page.lines)
        gaps += [page.gap] if page.gap else []
        place = page.after
        assert len(place) <= PLACE_LIMIT
        if page.is_end:
            return texts, place, gaps
