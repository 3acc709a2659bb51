"""Answers the JSON requests beside a log stream: older lines, lines around one line, labels."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import TypeVar

from dashboard.fair_semaphore import FairSemaphore, NoFreeSlot
from dashboard.live import asking, notes
from dashboard.live.asking import Fields, Refused
from dashboard.live.feeds import Feeds, PersonFeeds
from dashboard.live.hub import Full
from dashboard.live.packing import body, fitting, packed
from dashboard.live.session import Visitor
from dashboard.live.stream import Scope, Send, refuse
from recovery.domain.lines import Query
from recovery.errors import Missing, TimedOut
from recovery.logs.base import PLACE_LIMIT, Labels, Page, Source

ANSWER_SECONDS = 15.0
AT_ONCE = 32  # in this process; each may hold a page of lines
EACH = 8  # of one person
ANSWER_BYTES = 1024 * 1024
OLDER_LINES = 500  # if the request names no number
OLDER_MOST = 1000
AROUND_LINES = 50
LABELS_HOURS = 6  # if the request names no start: the default of Loki
JSON = b"application/json"

Answer = TypeVar("Answer")


class Failed(Exception):
    """Raised if the source did not answer; has the HTTP status and the notice for the page."""

    def __init__(self, failure: Exception) -> None:
        is_late = isinstance(failure, TimedOut | TimeoutError)
        self.status = 404 if isinstance(failure, Missing) else 504 if is_late else 502
        self.note = notes.of(failure)
        super().__init__(self.note.text)


class Answers:
    def __init__(self, feeds: Feeds) -> None:
        self._feeds = feeds
        self._places = FairSemaphore(AT_ONCE, EACH, queue=0)

    async def __call__(self, name: str, visitor: Visitor, scope: Scope, send: Send) -> None:
        fields = Fields(scope["query_string"])
        if name not in ("older", "around", "labels"):
            return await refuse(send, 404, "Unknown stream.")
        source = asking.source(fields.one("source"), self._feeds.sources)
        try:
            async with self._places.one(f"user {visitor.id}", waiting=0):
                told = await AnswerSearch(self._feeds.of(visitor.id)).told(name, source, fields)
        except NoFreeSlot as none:
            whose = "You search" if none.is_own else "This process searches"
            raise Full(f"{whose} logs as often at once as is allowed. Ask again in a moment.") from None
        except Failed as failed:
            words = json.dumps({"error": failed.note.text, "advice": failed.note.advice})
            return await refuse(send, failed.status, words, kind=JSON)
        await refuse(send, 200, told, kind=JSON)
        return None


class AnswerSearch:
    """JSON request of one user, with their feeds."""

    def __init__(self, feeds: PersonFeeds) -> None:
        self._feeds = feeds

    async def told(self, name: str, source: Source, fields: Fields) -> str:
        if name == "older":
            return await self._older(source, fields)
        return await (self._around(source, fields) if name == "around" else self._labels(source, fields))

    async def _older(self, source: Source, fields: Fields) -> str:
        query, before = asking.question(fields), place(fields, "before")
        limit = fields.number("limit", OLDER_MOST) or OLDER_LINES
        page = await self._of(source, source.search(query, before=before, limit=limit))
        rows, rest = fitting(page, ANSWER_BYTES)
        reached = None if page.reached is None else str(page.reached)
        return f"{{{body(rows).decode()},{_members(before=rest, reached=reached)}}}"

    async def _around(self, source: Source, fields: Fields) -> str:
        query = Query(labels=asking.labels(fields))
        lines = fields.number("lines", AROUND_LINES) or AROUND_LINES
        page: Page = await self._of(source, source.around(place(fields, "id"), query, lines=lines))
        return f"{{{body(packed(page.lines)).decode()},{_members(before=page.before, after=page.after)}}}"

    async def _labels(self, source: Source, fields: Fields) -> str:
        asked = asking.question(fields)
        end = asked.end or time.time_ns()
        start = asked.start if asked.start is not None else end - LABELS_HOURS * asking.HOUR
        found: Labels = await self._of(source, source.labels(start, end))
        return json.dumps(
            {"labels": {name: list(values) for name, values in found.values.items()}, "is_cut": found.is_cut}
        )

    async def _of(self, source: Source, question: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._feeds.turn(source):
                return await question
        except Exception as failure:
            raise Failed(failure) from failure


def place(fields: Fields, name: str) -> str:
    given = fields.one(name)
    if len(given) > PLACE_LIMIT or not given.isascii() or " " in given or not (given.isprintable()):
        raise Refused(f"{name}: not a valid path.")
    return given


def _members(**values: object) -> str:
    return json.dumps(values)[1:-1]
