"""HTTP client of one Loki: its queries, and its answers as plain values.

Each is bounded in time and size. When it asks for patience it is not asked again before that.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LogSource
from recovery.domain.logs.types import LogLevel
from recovery.errors import Garbled
from recovery.logs.loki.errors import NO_LOKI, LokiBusy, LokiLimitExceeded, error_from
from recovery.logs.loki.logql import LEVEL, LEVELS, sound
from recovery.logs.loki.positions import Key, digest
from recovery.stores.http.http_client import HttpGetRequest, HttpPool
from recovery.stores.http.http_errors import HttpResponseTooLong

API = "/loki/api/v1"
MOST = 5000  # lines of one answer: what Loki allows unless it is told otherwise
LARGEST = 16 * 1024 * 1024  # bytes of one answer; with longer lines fewer are asked for
_LARGE = 64 * 1024  # bytes: more than that is work for a thread
# Labels as they are, with what belongs to a single line apart from them. An older Loki has no such thing.
_APART = {"X-Loki-Response-Encoding-Flags": "categorize-labels"}
_MS = 10**6  # ns
_DIGITS = re.compile(r"\d{1,19}", re.ASCII)
T = TypeVar("T")


class LokiEntry(NamedTuple):
    """Line as Loki keeps it. `stream` and `mark` are digests."""

    at: int
    stream: str
    mark: str
    text: str
    labels: Mapping[str, str]
    level: LogLevel | None

    @property
    def key(self) -> Key:
        return self.at, self.stream, self.mark


class LokiClient:
    def __init__(self, spec: LogSource) -> None:
        self._endpoint = spec.endpoint or HttpEndpoint("")
        self._more = {"X-Scope-OrgID": spec.tenant} if spec.tenant else {}
        self._pool = HttpPool(self._endpoint.ca, seconds=spec.timeout, largest=LARGEST, refusal=error_from)
        self._rests_until = 0.0
        self._busy: LokiBusy | None = None
        self.target = self._endpoint.target
        self.most = MOST

    async def lines(
        self, logql: str, start: int, end: int, limit: int, *, is_backward: bool
    ) -> tuple[list[LokiEntry], bool]:
        """Returns lines from `start` to before `end`, oldest first in each stream; and whether there may be more."""
        limit = min(limit, self.most)
        while True:
            asked = {
                "query": logql,
                "start": str(start),
                "end": str(end),
                "limit": str(limit),
                "direction": "backward" if is_backward else "forward",
            }
            try:
                found = await self._ask("/query_range", asked, lambda told: _streams(told, is_backward))
            except LokiLimitExceeded as error:
                if error.most >= limit or error.most < 1:
                    raise
                self.most = limit = error.most
            except HttpResponseTooLong:
                if limit == 1:
                    raise
                limit = max(1, limit // 4)
            else:
                return found, len(found) >= limit

    async def count(self, logql: str, at: int) -> int | None:
        """Returns how many lines have this ns; None when that cannot be told.

        Loki counts over milliseconds. Of two that end a ns apart the difference is what one has at its end and the
        other had at its beginning.
        """
        query = f"sum(count_over_time({logql}[1ms]))"
        to = await self._ask("/query", {"query": query, "time": str(at)}, _total)
        until = await self._ask("/query", {"query": query, "time": str(at - 1)}, _total)
        begun, is_cut = await self.lines(logql, at - _MS, at - _MS + 1, self.most, is_backward=False)
        return None if is_cut else to - until + len(begun)

    async def labels(self, matchers: str, start: int, end: int) -> list[str]:
        return await self._ask("/labels", _within(start, end, {"query": matchers}), _texts)

    async def values(self, name: str, matchers: str, start: int, end: int) -> list[str]:
        path = f"/label/{quote(name, safe='')}/values"
        return await self._ask(path, _within(start, end, {"query": matchers}), _texts)

    async def series(self, matchers: str, start: int, end: int) -> list[frozenset[str]]:
        """Returns the names of the labels of each stream."""
        return await self._ask("/series", _within(start, end, {"match[]": matchers}), _series)

    async def close(self) -> None:
        await self._pool.close()

    async def _ask(self, path: str, params: Mapping[str, str], read: Callable[[Any], T]) -> T:
        self._check_rest()
        question = HttpGetRequest(self._endpoint, API + path, params, {**self._more, **_APART})
        try:
            answer = await self._pool.answer(question)
        except LokiBusy as error:
            self._busy, self._rests_until = error, _steady() + error.rest
            raise
        try:
            if len(answer.body) < _LARGE:
                return read(_told(answer.body))
            return await asyncio.to_thread(lambda: read(_told(answer.body)))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise Garbled(self.target, "it does not answer like a Loki", advice=NO_LOKI) from error

    def _check_rest(self) -> None:
        rest = self._rests_until - _steady()
        if self._busy is not None and rest > 0:
            raise LokiBusy(self.target, f"{self._busy.reason}; next query in {rest:.0f} s", advice=self._busy.advice)


def _told(body: bytes) -> Any:
    """Returns the data of an answer. Loki leaves out a list of nothing."""
    answer = json.loads(body)
    if answer["status"] != "success":
        raise ValueError("no success")
    return answer.get("data")


def _steady() -> float:
    return asyncio.get_running_loop().time()


def _within(start: int, end: int, more: Mapping[str, str]) -> dict[str, str]:
    return {"start": str(start), "end": str(end), **{name: value for name, value in more.items() if value}}


def _streams(told: Any, is_backward: bool) -> list[LokiEntry]:
    if told["resultType"] != "streams":
        raise ValueError("no lines")
    found: list[LokiEntry] = []
    for stream in told["result"]:
        found.extend(_entries(stream, is_backward))
    return found


def _entries(stream: Mapping[str, Any], is_backward: bool) -> Iterator[LokiEntry]:
    labels = {sound(name): sound(value) for name, value in stream["stream"].items()}
    level = _level(labels.pop(LEVEL, ""))
    name = digest(json.dumps(labels, sort_keys=True).encode())
    for written, text, *more in reversed(stream["values"]) if is_backward else stream["values"]:
        if not _DIGITS.fullmatch(written):
            raise ValueError("no moment")
        line = sound(text)
        yield LokiEntry(int(written), name, digest(line.encode()), line, labels, _own_level(more) or level)


def _own_level(more: Sequence[Any]) -> LogLevel | None:
    metadata = more[0].get("structuredMetadata") if more else None
    return _level(str(metadata.get(LEVEL, ""))) if metadata else None


def _level(name: str) -> LogLevel | None:
    return LEVELS.get(name.lower())


def _total(told: Any) -> int:
    rows = told["result"]
    return int(float(rows[0]["value"][1])) if rows else 0


def _texts(told: Any) -> list[str]:
    return [sound(text) for text in told or ()]


def _series(told: Any) -> list[frozenset[str]]:
    return [frozenset(sound(name) for name in labels) for labels in told or ()]
