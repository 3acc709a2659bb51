"""A reader of /live/logs of a real web process, whose connection may be cut at any byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlencode

from tests.support.logs.log_lines import Browser
from tests.support.patience import patience
from tests.support.processes.web_process import COOKIE, WebProcess

READ = 1 << 16


class Unchunked:
    """The body out of what comes over the wire, however it is cut into reads."""

    def __init__(self) -> None:
        self._rest = b""
        self._left = 0  # of the chunk that is under way, with the line end behind it
        self.is_end = False

    def of(self, some: bytes) -> bytes:
        self._rest += some
        found = []
        while self._rest and not self.is_end:
            if not self._left:
                size, end, rest = self._rest.partition(b"\r\n")
                if not end:
                    break
                self._rest, self._left = rest, int(size, 16) + 2
                self.is_end = size == b"0"
                continue
            part, self._rest = self._rest[: self._left], self._rest[self._left :]
            found.append(part[: max(0, self._left - 2)])
            self._left -= len(part)
        return b"".join(found)


class Reading:
    """What a tab asks for, over as many connections as it takes. `browser`: what it has."""

    def __init__(self, web: WebProcess, person: str = "viewer", *, is_small: bool = False, **asked: str) -> None:
        """`is_small`: next to nothing is held for it on the way."""
        self.browser = Browser()
        self._is_small = is_small
        self.web = web
        self.status = 0
        self.headers = ""
        self._person = person
        self._asked = {"tab": person, "from": "0", **asked}
        self._generation = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._body = Unchunked()

    @property
    def is_over(self) -> bool:
        return self._body.is_end

    async def open(self) -> None:
        self._generation += 1
        asked = {**self._asked, "g": str(self._generation)}
        if self.browser.last:
            asked["last"] = self.browser.last
        client = socket.socket()
        if self._is_small:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", self.web.port))
        self._reader, self._writer = await asyncio.open_connection(sock=client)
        self._writer.write(
            f"GET /live/logs?{urlencode(asked)} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
            f"Cookie: {COOKIE}={self.web.cookies[self._person]}\r\n\r\n".encode()
        )
        self._body = Unchunked()
        head = (await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), patience(10))).decode()
        self.status, self.headers = int(head.split()[1]), head

    def cut(self) -> bool:
        """What had come of an event is forgotten, as a browser does it; whether there was such a part."""
        if self._writer:
            self._writer.transport.abort()
        return self.browser.reconnect()

    async def take(self, size: int = READ) -> bool:
        """Some bytes; False when there are no more to come."""
        assert self._reader
        some = await self._reader.read(min(size, READ))
        self.browser.take(self._body.of(some))
        return bool(some)

    async def until(self, condition: Callable[[], object], seconds: float = 15.0) -> None:
        """On the connection that is open, until the condition holds; fails when it ends before."""
        async with asyncio.timeout(patience(seconds)):
            while not condition():
                assert await self.take(), "the stream ended"

    async def some(self, size: int, seconds: float) -> None:
        """So many bytes, or what comes in so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while size > 0 and self._reader:
                    taken = min(size, READ)
                    size -= taken
                    if not await self.take(taken):
                        return
