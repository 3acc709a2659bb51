"""Finds the streams that a query is about, as selectors that Loki takes.

Loki refuses a question that names no label at all. Then its own list of streams says by which labels all of them can
be had: most often it is one that each stream has, and else a selector for each of a few.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from recovery.domain.logs.types import LogQuery
from recovery.errors import StatementRefused
from recovery.logs.loki import logql
from recovery.logs.loki.client import LokiClient
from recovery.stores.http.http_errors import HttpResponseTooLong

_KEPT_SECONDS = 10.0  # streams with labels of their own that begin within it are met as late lines
_RECENT_NS = 6 * 3600 * 10**9
_MOST = 8  # labels that have to be asked for side by side


class LokiSelectors:
    def __init__(self, asking: LokiClient, match: str) -> None:
        self._asking = asking
        self._match = match
        self._kept: tuple[float, Sequence[str]] = 0.0, ()

    @property
    def every(self) -> str:
        """Returns the selector of all streams of this source; "" if `match` is empty or does not narrow."""
        return logql.selector([self._match]) if logql.narrows(self._match, LogQuery()) else ""

    async def of(self, question: LogQuery, start: int, end: int, *, is_kept: bool = False) -> list[str]:
        """Returns selectors; none at all when no stream can have these labels. `is_kept`: a recent answer will do."""
        if not all(values and ("" in values or logql.is_name(name)) for name, values in question.labels):
            return []
        parts, filters = logql.matchers(self._match, question), logql.filters(question)
        if logql.narrows(self._match, question):
            return [logql.selector(parts) + filters]
        names = await (self._names_kept() if is_kept else self._names(start, end))
        return [
            logql.selector([*parts, *map(logql.absent, names[:number]), logql.present(name)]) + filters
            for number, name in enumerate(names)
        ]

    async def _names_kept(self) -> Sequence[str]:
        """Returns the names of the last hours, kept for some seconds."""
        now = asyncio.get_running_loop().time()
        until, names = self._kept
        if not names or now > until:
            at = time.time_ns()
            names = await self._names(at - _RECENT_NS, at)
            self._kept = now + _KEPT_SECONDS, names
        return names

    async def _names(self, start: int, end: int) -> Sequence[str]:
        """Returns labels of which each stream has at least one."""
        try:
            streams = await self._asking.series(self.every, start, end)
        except HttpResponseTooLong as error:
            raise StatementRefused(
                self._asking.target,
                "it has too many streams to read them all",
                advice="Choose a label, or write match in this source of [[logs]].",
            ) from error
        return logql.cover([frozenset(filter(logql.is_name, names)) for names in streams], _MOST)
