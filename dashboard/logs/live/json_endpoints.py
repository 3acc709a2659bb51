"""Answers the JSON requests beside a log stream: older lines, lines around one line, labels."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable
from typing import TypeVar

from dashboard.live.asgi import Scope, Send, refuse
from dashboard.live.hub import LiveLimitReached
from dashboard.live.session import Visitor
from dashboard.logs.live import notices, request
from dashboard.logs.live.encoding import encode_body, encode_lines, newest_rows_within
from dashboard.logs.live.feed_registry import FeedRegistry, UserFeeds
from dashboard.logs.live.request import LogRequestRefused, UrlFields
from dashboard.server.fair_semaphore import FairSemaphore, NoFreeSlot
from recovery.domain.logs.types import LogQuery
from recovery.errors import Missing, TimedOut
from recovery.logs.base import PLACE_LIMIT, LogLabels, LogReader, LogResultPage

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


class LogSourceFailed(Exception):
    """Raised if the source did not answer; has the HTTP status and the notice for the page."""

    def __init__(self, failure: Exception) -> None:
        is_late = isinstance(failure, TimedOut | TimeoutError)
        self.status = 404 if isinstance(failure, Missing) else 504 if is_late else 502
        self.note = notices.failure_notice(failure)
        super().__init__(self.note.text)


class LogEndpoints:
    def __init__(self, feeds: FeedRegistry) -> None:
        self._feeds = feeds
        self._places = FairSemaphore(AT_ONCE, EACH, queue=0)

    async def __call__(self, name: str, visitor: Visitor, scope: Scope, send: Send) -> None:
        fields = UrlFields(scope["query_string"])
        if name not in ("older", "around", "labels"):
            return await refuse(send, 404, "Unknown stream.")
        source = request.select_source(fields.one("source"), self._feeds.sources)
        try:
            async with self._places.one(f"user {visitor.id}", waiting=0):
                told = await LogLookup(self._feeds.of(visitor.id)).told(name, source, fields)
        except NoFreeSlot as none:
            whose = "You search" if none.is_own else "This process searches"
            raise LiveLimitReached(f"{whose} logs as often at once as is allowed. Ask again in a moment.") from None
        except LogSourceFailed as failed:
            words = json.dumps({"error": failed.note.text, "advice": failed.note.advice})
            return await refuse(send, failed.status, words, kind=JSON)
        await refuse(send, 200, told, kind=JSON)
        return None


class LogLookup:
    """JSON request of one user, with their feeds."""

    def __init__(self, feeds: UserFeeds) -> None:
        self._feeds = feeds

    async def told(self, name: str, source: LogReader, fields: UrlFields) -> str:
        if name == "older":
            return await self._older(source, fields)
        return await (self._around(source, fields) if name == "around" else self._labels(source, fields))

    async def _older(self, source: LogReader, fields: UrlFields) -> str:
        query, before = request.parse_query(fields), parse_position(fields, "before")
        limit = fields.number("limit", OLDER_MOST) or OLDER_LINES
        page = await self._of(source, source.search(query, before=before, limit=limit))
        rows, rest = newest_rows_within(page, ANSWER_BYTES)
        reached = None if page.reached is None else str(page.reached)
        return f"{{{encode_body(rows).decode()},{_members(before=rest, reached=reached)}}}"

    async def _around(self, source: LogReader, fields: UrlFields) -> str:
        query = LogQuery(labels=request.labels(fields))
        lines = fields.number("lines", AROUND_LINES) or AROUND_LINES
        page: LogResultPage = await self._of(source, source.around(parse_position(fields, "id"), query, lines=lines))
        return f"{{{encode_body(encode_lines(page.lines)).decode()},{_members(before=page.before, after=page.after)}}}"

    async def _labels(self, source: LogReader, fields: UrlFields) -> str:
        asked = request.parse_query(fields)
        end = asked.end or time.time_ns()
        start = asked.start if asked.start is not None else end - LABELS_HOURS * request.HOUR
        found: LogLabels = await self._of(source, source.labels(start, end))
        return json.dumps(
            {"labels": {name: list(values) for name, values in found.values.items()}, "is_cut": found.is_cut}
        )

    async def _of(self, source: LogReader, question: Awaitable[Answer]) -> Answer:
        try:
            async with asyncio.timeout(ANSWER_SECONDS), self._feeds.turn(source):
                return await question
        except Exception as failure:
            raise LogSourceFailed(failure) from failure


def parse_position(fields: UrlFields, name: str) -> str:
    given = fields.one(name)
    if len(given) > PLACE_LIMIT or not given.isascii() or " " in given or not (given.isprintable()):
        raise LogRequestRefused(f"{name}: not a valid path.")
    return given


def _members(**values: object) -> str:
    return json.dumps(values)[1:-1]
