"""Finds the streams that a query is about, as selectors that Loki takes.

Loki refuses a question that names no label at all. Then its own list of streams says by which labels all of them can
be had: most often it is one that each stream has, and else a selector for each of a few.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from recovery.connections.http_faults import TooLong
from recovery.domain.lines import Query
from recovery.errors import StatementRefused
from recovery.logs.loki import selector
from recovery.logs.loki.asking import Asking

_KEPT_SECONDS = 10.0  # streams with labels of their own that begin within it are met as late lines
_RECENT_NS = 6 * 3600 * 10**9
_MOST = 8  # labels that have to be asked for side by side


class Scope:
    def __init__(self, asking: Asking, match: str) -> None:
        self._asking = asking
        self._match = match
        self._kept: tuple[float, Sequence[str]] = 0.0, ()

    @property
    def every(self) -> str:
        """Returns the selector of all streams of this source; "" if `match` is empty or does not narrow."""
        return selector.selector([self._match]) if selector.narrows(self._match, Query()) else ""

    async def of(self, question: Query, start: int, end: int, *, is_kept: bool = False) -> list[str]:
        """Returns selectors; none at all when no stream can have these labels. `is_kept`: a recent answer will do."""
        if not all(values and ("" in values or selector.is_name(name)) for name, values in question.labels):
            return []
        parts, filters = selector.matchers(self._match, question), selector.filters(question)
        if selector.narrows(self._match, question):
            return [selector.selector(parts) + filters]
        names = await (self._names_kept() if is_kept else self._names(start, end))
        return [
            selector.selector([*parts, *map(selector.absent, names[:number]), selector.present(name)]) + filters
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
        except TooLong as error:
            raise StatementRefused(
                self._asking.target,
                "it has too many streams to read them all",
                advice="Choose a label, or write match in this source of [[logs]].",
            ) from error
        return selector.cover([frozenset(filter(selector.is_name, names)) for names in streams], _MOST)
