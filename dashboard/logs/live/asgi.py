"""Serves /live/logs as an ASGI application: the stream of lines, downloads, and the JSON requests beside it.

Each request of a tab has a generation, and the newest counts: its stream ends the earlier one at once, with the search
that it was waiting for. A later request with an older generation is refused.
"""

from __future__ import annotations

import time

from dashboard.live import asgi as live_asgi
from dashboard.live.asgi import Receive, Scope, Send, refuse
from dashboard.live.hub import Hub, LiveLimitReached
from dashboard.live.session import Visitor
from dashboard.logs.live import download, request
from dashboard.logs.live.download import LogDownload
from dashboard.logs.live.feed_registry import FeedRegistry
from dashboard.logs.live.json_endpoints import LogEndpoints
from dashboard.logs.live.request import LogRequest, LogRequestRefused
from dashboard.logs.live.stream import LogStream
from dashboard.server.fair_semaphore import FairSemaphore, NoFreeSlot
from recovery.config import Config
from recovery.logs import registry as logs_registry
from recovery.stores.state import async_client

PATH = "/live/logs"

Tab = tuple[int, str]


class LogsApp:
    """ASGI application of /live/logs. Only the event loop uses it, between `start` and `stop`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tabs: dict[Tab, LogStream] = {}
        self._feeds = FeedRegistry({})
        self._downloads = FairSemaphore(download.AT_ONCE, download.EACH, queue=0)

    def start(self, config: Config) -> None:
        self._client = async_client.state_client(config)
        self._feeds = FeedRegistry(logs_registry.make_sources(config, self._client))
        self._answers = LogEndpoints(self._feeds)

    async def stop(self) -> None:
        await self._feeds.close()
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (visitor := await live_asgi.authenticate(self._hub, scope, send)) is None:
            return
        try:
            if scope["path"] == PATH:
                await self._stream(visitor, scope, receive, send)
            elif scope["path"] == download.PATH:
                await self._download(visitor, scope, receive, send)
            else:
                await self._answers(scope["path"].removeprefix(f"{PATH}/"), visitor, scope, send)
        except LogRequestRefused as refused:
            await refuse(send, 400, str(refused))
        except LiveLimitReached as full:
            await refuse(send, 503, str(full), live_asgi.retry_after_headers())

    async def _stream(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        log_request = request.parse_log_request(
            scope["query_string"], _last(scope), self._feeds.sources, time.time_ns()
        )
        tab = (visitor.id, log_request.tab)
        if not self._gives_way(tab, log_request):
            return await refuse(send, 409, "This page requested something newer.")
        self._hub.make_sure_of_room(visitor)
        opened = LogStream(visitor, live_asgi.abort_of(scope), log_request, self._feeds)
        self._tabs[tab] = opened
        self._hub.admit(opened)
        try:
            opened.start()
            await live_asgi.run(self._hub, opened, receive, send)
        finally:
            opened.close()
            if self._tabs.get(tab) is opened:
                del self._tabs[tab]
        return None

    async def _download(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        opened = download.opened(visitor, live_asgi.abort_of(scope), scope["query_string"], self._feeds)
        self._hub.make_sure_of_room(visitor)
        try:
            async with self._downloads.one(f"user {visitor.id}", waiting=0):
                self._hub.admit(opened)
                await live_asgi.run(self._hub, opened, receive, send, LogDownload.write)
        except NoFreeSlot as none:
            whose = "You load" if none.is_own else "This process writes"
            raise LiveLimitReached(
                f"{whose} as many files of logs as is allowed at once. Ask again in a moment."
            ) from None

    def _gives_way(self, tab: Tab, log_request: LogRequest) -> bool:
        """Ends the earlier stream of this tab; returns False if that one is newer."""
        earlier = self._tabs.get(tab)
        if earlier is None or not log_request.tab:
            return True
        if earlier.log_request.g > log_request.g:
            return False
        earlier.depart()
        earlier.close()
        return True


def _last(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), "")
