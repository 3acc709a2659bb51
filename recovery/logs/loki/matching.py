"""Makes lines safe to show, and matches what is shown. Many are work for a thread: the loop goes on meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from recovery.domain.logs.sanitize import JUDGED, sanitize_line
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.logs.loki.late_lines import Step, place_of

_FEW = 20  # lines: a millisecond


@dataclass(slots=True)
class LokiMatches:
    """Matching lines in the order in which they were read, of the first `looked_at` that were handed over."""

    lines: list[LogLine] = field(default_factory=list)
    looked_at: int = 0


async def match_lines(steps: Sequence[Step], query: LogQuery, limit: int) -> LokiMatches:
    """Matches lines until `limit` of them match."""
    if len(steps) <= _FEW:
        return _judged(steps, query, limit)
    return await asyncio.to_thread(_judged, steps, query, limit)


def _judged(steps: Sequence[Step], query: LogQuery, limit: int) -> LokiMatches:
    found = LokiMatches()
    for step in steps:
        if len(found.lines) >= limit:
            break
        found.looked_at += 1
        line = _line(step, is_revealed=query.is_revealed)
        if query.matches(line):
            found.lines.append(line)
    return found


def _line(step: Step, *, is_revealed: bool) -> LogLine:
    _, entry = step
    raw, id = entry.text.encode(), str(place_of(step))
    more = max(0, len(raw) - JUDGED)
    return sanitize_line(id, entry.at, raw[:JUDGED], entry.labels, entry.level, more=more, is_revealed=is_revealed)
