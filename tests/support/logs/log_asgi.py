"""/live/logs without a server around it: the ASGI application over sources in memory, and readers of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from dashboard.live.hub import Hub
from dashboard.live.session import Visitor
from dashboard.logs.live import asgi as live_asgi
from recovery.config import load
from recovery.logs.base import LogReader
from tests.support.logs.log_lines import Browser
from tests.support.patience import patience

NOBODY = "redis://127.0.0.1:1/0"  # the sources are in memory
PEOPLE = {"anne": Visitor(1, "session-of-anne"), "bob": Visitor(2, "session-of-bob")}


class Open(Hub):
    """Whoever says who he is is believed."""

    async def visitor(self, cookies: str) -> Visitor | None:
        return PEOPLE.get(cookies)


class Request:
    """One, as the server hands it over. Without `may_take` its reader takes nothing more."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.browser = Browser()
        self.is_whole = False
        self.may_take = asyncio.Event()
        self.may_take.set()
        self._left = asyncio.Event()
        self._news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    async def until(self, condition: Any, seconds: float = 10.0) -> None:
        async with asyncio.timeout(patience(seconds)):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def whole(self, seconds: float = 10.0) -> None:
        """Until the application has nothing more to say."""
        assert self.task
        async with asyncio.timeout(patience(seconds)):
            await self.task

    def leave(self) -> None:
        self._left.set()

    async def receive(self) -> Mapping[str, Any]:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Mapping[str, Any]) -> None:
        await self.may_take.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif not self._left.is_set():
            self.body += message.get("body", b"")
            if self.headers.get("content-type", "").startswith("text/event-stream"):
                self.browser.take(message.get("body", b""))
            self.is_whole = not message.get("more_body", False)
        self._news.set()


class LogHouse:
    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.logs = live_asgi.LogsApp(hub)
        self.requests: list[Request] = []

    def ask(self, path: str, person: str = "anne", *, method: str = "GET", last: str = "") -> Request:
        """It is under way; what comes of it stands in the request."""
        request = Request()
        route, _, query = path.partition("?")
        headers = [(b"cookie", person.encode())] + ([(b"last-event-id", last.encode())] if last else [])
        scope = {"type": "http", "method": method, "path": route, "query_string": query.encode(), "headers": headers}
        request.task = asyncio.create_task(self.logs(scope, request.receive, request.send))
        self.requests.append(request)
        return request

    async def answer(self, path: str, person: str = "anne", *, method: str = "GET") -> Request:
        request = self.ask(path, person, method=method)
        await request.whole()
        return request


@asynccontextmanager
async def log_house(monkeypatch: pytest.MonkeyPatch, *sources: LogReader) -> AsyncIterator[LogHouse]:
    named = {source.name: source for source in sources}
    monkeypatch.setattr(live_asgi.logs_registry, "make_sources", lambda *_: named)
    house = LogHouse(Open())
    house.hub.start()
    house.logs.start(load({"UNSTALL_STATE_URL": NOBODY}))
    try:
        yield house
    finally:
        for request in house.requests:
            request.leave()
            request.may_take.set()
        await house.hub.close()
        await asyncio.gather(*(request.task for request in house.requests if request.task))
        await house.logs.stop()
