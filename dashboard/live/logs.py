"""Serves /live/logs as an ASGI application: the stream of lines, downloads, and the JSON requests beside it.

Each request of a tab has a generation, and the newest counts: its stream ends the earlier one at once, with the search
that it was waiting for. A later request with an older generation is refused.
"""

from __future__ import annotations

import time

from dashboard.fair_semaphore import FairSemaphore, NoFreeSlot
from dashboard.live import asking, download, stream
from dashboard.live.answers import Answers
from dashboard.live.asking import Refused, Wish
from dashboard.live.download import Download
from dashboard.live.feeds import Feeds
from dashboard.live.hub import Full, Hub
from dashboard.live.log_stream import LogStream
from dashboard.live.session import Visitor
from dashboard.live.stream import Receive, Scope, Send, refuse
from recovery.config import Config
from recovery.connections import aio
from recovery.logs import sources

PATH = "/live/logs"

Tab = tuple[int, str]


class Logs:
    """ASGI application of /live/logs. Only the event loop uses it, between `start` and `stop`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._tabs: dict[Tab, LogStream] = {}
        self._feeds = Feeds({})
        self._downloads = FairSemaphore(download.AT_ONCE, download.EACH, queue=0)

    def start(self, config: Config) -> None:
        self._client = aio.state_client(config)
        self._feeds = Feeds(sources.opened(config, self._client))
        self._answers = Answers(self._feeds)

    async def stop(self) -> None:
        await self._feeds.close()
        await self._client.aclose()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (visitor := await stream.admitted(self._hub, scope, send)) is None:
            return
        try:
            if scope["path"] == PATH:
                await self._stream(visitor, scope, receive, send)
            elif scope["path"] == download.PATH:
                await self._download(visitor, scope, receive, send)
            else:
                await self._answers(scope["path"].removeprefix(f"{PATH}/"), visitor, scope, send)
        except Refused as refused:
            await refuse(send, 400, str(refused))
        except Full as full:
            await refuse(send, 503, str(full), stream.come_back())

    async def _stream(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        wish = asking.wish(scope["query_string"], _last(scope), self._feeds.sources, time.time_ns())
        tab = (visitor.id, wish.tab)
        if not self._gives_way(tab, wish):
            return await refuse(send, 409, "This page requested something newer.")
        self._hub.make_sure_of_room(visitor)
        opened = LogStream(visitor, stream.cut_of(scope), wish, self._feeds)
        self._tabs[tab] = opened
        self._hub.admit(opened)
        try:
            opened.start()
            await stream.run(self._hub, opened, receive, send)
        finally:
            opened.close()
            if self._tabs.get(tab) is opened:
                del self._tabs[tab]
        return None

    async def _download(self, visitor: Visitor, scope: Scope, receive: Receive, send: Send) -> None:
        opened = download.opened(visitor, stream.cut_of(scope), scope["query_string"], self._feeds)
        self._hub.make_sure_of_room(visitor)
        try:
            async with self._downloads.one(f"user {visitor.id}", waiting=0):
                self._hub.admit(opened)
                await stream.run(self._hub, opened, receive, send, Download.write)
        except NoFreeSlot as none:
            whose = "You load" if none.is_own else "This process writes"
            raise Full(f"{whose} as many files of logs as is allowed at once. Ask again in a moment.") from None

    def _gives_way(self, tab: Tab, wish: Wish) -> bool:
        """Ends the earlier stream of this tab; returns False if that one is newer."""
        earlier = self._tabs.get(tab)
        if earlier is None or not wish.tab:
            return True
        if earlier.wish.g > wish.g:
            return False
        earlier.depart()
        earlier.close()
        return True


def _last(scope: Scope) -> str:
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == b"last-event-id"), "")
