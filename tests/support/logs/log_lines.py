"""A source of log lines in memory, for tests of what reads sources; and a reader as a browser is one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recovery.domain.logs.types import LogLine, LogQuery
from recovery.errors import Missing, StoreError
from recovery.logs.base import LogGap, LogLabels, LogResultPage

NO_LABELS: Mapping[str, str] = {}


class Memory:
    """Lines in the order they were written. A place is how many of them lie before it."""

    def __init__(self, name: str = "memory", *, pace: float = 0.01) -> None:
        self.name = name
        self.label = name
        self.pace = pace
        self.server_label = ""
        self.lines: list[LogLine] = []
        self.asked: list[str] = []  # the questions, by their names
        self.under_way = 0
        self.trouble: StoreError | None = None
        self.delay = 0.0
        self.trimmed = 0  # so many of the first lines are gone

    def write(self, *texts: str, at: int | None = None, labels: Mapping[str, str] = NO_LABELS) -> None:
        for text in texts:
            number = len(self.lines) + 1
            self.lines.append(LogLine(f"m.{number}", number if at is None else at, text, labels))

    async def labels(self, start: int, end: int) -> LogLabels:
        await self._turn("labels")
        found: dict[str, set[str]] = {}
        for line in self.lines:
            for name, value in line.labels.items():
                found.setdefault(name, set()).add(value)
        return LogLabels({name: sorted(values) for name, values in found.items()})

    async def search(self, query: LogQuery, *, before: str = "", limit: int = 500) -> LogResultPage:
        await self._turn("search")
        end = _number(before) if before else len(self.lines)
        found = [line for line in self.lines[self.trimmed : end] if query.matches(line)][-limit:]
        older = _number(found[0].id) - 1 if len(found) == limit else self.trimmed
        is_end = older <= self.trimmed
        return LogResultPage(found, "" if is_end else f"m.{older}", f"m.{end}", is_end=is_end)

    async def read(self, query: LogQuery, *, after: str, limit: int = 1000) -> LogResultPage:
        await self._turn("read")
        start = _number(after) if after else len(self.lines)
        if start > len(self.lines):
            raise Missing("there is no such place")
        gap = LogGap("trimmed", self.trimmed - start) if start < self.trimmed else None
        looked = self.lines[max(start, self.trimmed) :][:limit]
        end = max(start, self.trimmed) + len(looked)
        found = [line for line in looked if query.matches(line)]
        return LogResultPage(found, after=f"m.{end}", gap=gap, is_end=end == len(self.lines))

    async def around(self, id: str, query: LogQuery, *, lines: int = 50) -> LogResultPage:
        await self._turn("around")
        number = _number(id)
        if not 0 < number <= len(self.lines):
            raise Missing("this line is gone")
        chosen = [line for line in self.lines[max(0, number - 1 - lines) : number + lines] if query.matches(line)]
        return LogResultPage(chosen, "", chosen[-1].id)

    def tap(self, query: LogQuery) -> LogQuery:
        return LogQuery()

    async def close(self) -> None:
        self.asked.append("close")

    async def _turn(self, question: str) -> None:
        self.asked.append(question)
        self.under_way += 1
        try:
            await asyncio.sleep(self.delay)
            if self.trouble:
                raise self.trouble
        finally:
            self.under_way -= 1


def _number(place: str) -> int:
    head, _, number = place.partition(".")
    if head != "m" or not number.isdigit():
        raise Missing("there is no such place")
    return int(number)


@dataclass(slots=True)
class Browser:
    """Takes bytes as they come; what is cut off is forgotten, as a browser does it."""

    lines: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    details: list[Any] = field(default_factory=list)
    last: str = ""
    _rest: bytes = b""

    def take(self, some: bytes) -> None:
        *blocks, self._rest = (self._rest + some).split(b"\n\n")
        for block in blocks:
            self._block(block.decode("ascii"))

    def reconnect(self) -> bool:
        """Whether an event was under way, which is lost."""
        is_broken, self._rest = bool(self._rest), b""
        return is_broken

    def said(self, kind: str) -> list[dict[str, Any]]:
        return [note for note in self.notes if note["kind"] == kind]

    def _block(self, block: str) -> None:
        fields = dict(row.split(": ", 1) for row in block.split("\n") if ": " in row and not row.startswith(":"))
        self.last = fields.get("id", self.last)
        if "event" not in fields:
            return
        detail = json.loads(fields["data"])
        self.events.append(fields["event"])
        self.details.append(detail)
        if fields["event"] == "lines":
            self.ids += [line[0] for line in detail["lines"]]
            self.lines += [_plain(line[4]) for line in detail["lines"]]
        elif fields["event"] == "note":
            self.notes.append(detail)


def _plain(text: str | list[list[str]]) -> str:
    return text if isinstance(text, str) else "".join(part for _, part in text)
