"""Runs uvicorn so that streams end before the server waits, and no signal is ignored.

On the first SIGTERM, SIGINT or SIGHUP: 1. accept no new connection, 2. end the streams with a farewell, 3. finish the
requests in hand, 4. stop mirror, Redis and database, 5. exit 0. A second signal exits at once; so does a stop
that takes too long.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import uvicorn
from django.http import HttpResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from dashboard.api import error_responses
from dashboard.live.asgi import ABORT, Receive, Scope, Send
from dashboard.live.hub import Hub
from dashboard.server import security_headers
from recovery.processes.signals import STOP_SIGNALS

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

REQUEST_SECONDS = 3  # for running requests at a shutdown
STOP_SECONDS = 10.0  # for the whole shutdown; a thread that hangs in a store must not delay it
KEEP_ALIVE_SECONDS = 75  # longer than the proxies in front (60 s), so that they close first and never meet a closed one
FILES_WANTED = 8192  # two thousand streams and other files; many systems start a process with 1,024
ADDRESS_LIMIT = 65_535  # bytes of a URL; httptools parses no longer one
HEAD_LIMIT = 128 * 1024  # bytes of a request before its body: URL and headers; a proxy allows some 32 KB
HEADERS_LIMIT = 200  # of a request: as objects they take 25 times the bytes; browsers and proxies send some 30
PIPELINE_LIMIT = 8  # requests that wait on a connection for the answer before them; browsers and proxies send none
HEAD_SECONDS = 20.0  # for them to arrive, from the moment of the connection or of the request's first byte
OVERDUE = 1
UNIX = "unix"
UNIX_PEER = "0.0.0.0"  # noqa: S104 -- not bound: login tables need an address, and no client has this one


class AddressTooLong(Exception):
    """Raised if the URL of a request has more than ADDRESS_LIMIT bytes."""


class TooManyHeaders(Exception):
    """Raised if a request has more than HEADERS_LIMIT headers."""


class TooManyRequests(Exception):
    """Raised if more than PIPELINE_LIMIT requests wait on one connection: each takes memory, however short it is."""


class HttpConnection(HttpToolsProtocol):
    """HTTP connection, with limits on its head; streams can drop it, and unix socket peers get UNIX_PEER."""

    url = b""  # URL of the request that is being read
    _is_head = False  # True from the connection, or the first byte of a request, to the end of its headers
    _head_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _answered: RequestResponseCycle | None = None  # the request that is being answered; others may wait behind it

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrower upstream too
        super().connection_made(transport)
        self.client = self.client or (UNIX_PEER, 0)
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_head()
        if self._answered and not self._answered.response_complete:  # uvicorn notifies only the latest request
            self._answered.disconnected = True
            self._answered.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        head = self._head_timer
        super().data_received(data)
        if head and head is self._head_timer and not self.transport.is_closing():  # all of the data belongs to one head
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_LIMIT:
                self.send_400_response(f"The headers have more than {HEAD_LIMIT:,} bytes.", 431)

    def on_message_begin(self) -> None:
        if len(self.pipeline) >= PIPELINE_LIMIT:
            raise TooManyRequests  # the parser ends with it, and send_400_response drops the connection
        super().on_message_begin()
        self._begin_head()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]  # ours

    def on_headers_complete(self) -> None:
        self._end_head()
        super().on_headers_complete()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_head:  # trailers behind a body are ignored
            return
        if len(self.headers) >= HEADERS_LIMIT:
            raise TooManyHeaders
        super().on_header(name, value)

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > ADDRESS_LIMIT:
            raise AddressTooLong  # the parser ends with it, and send_400_response answers

    def send_400_response(self, msg: str, status: int = 400) -> None:
        """Answers a request that cannot be parsed, below /api/ in the shape of its failures, and closes.

        While an earlier one is being answered nothing may be written in between: the connection is dropped.
        """
        if self.pipeline:
            self.transport.abort()
            return
        if len(self.headers) >= HEADERS_LIMIT:
            status, msg = 431, f"A request has at most {HEADERS_LIMIT} headers."
        if len(self.url) > ADDRESS_LIMIT:
            status, msg = 414, f"The URL has more than {ADDRESS_LIMIT:,} bytes."
        answer = HttpResponse(msg, status=status, content_type="text/plain; charset=utf-8")
        if self.url.startswith(error_responses.ROOT.encode()):
            answer = error_responses.site_error(status, msg)
        answer["Content-Length"], answer["Connection"] = str(len(answer.content)), "close"
        own = [(name.encode(), value.encode("latin-1")) for name, value in answer.items()]
        lines = [b"HTTP/1.1 %d %s" % (status, answer.reason_phrase.encode())]
        lines += [b"%s: %s" % header for header in security_headers.add_missing_headers(own)]
        self.transport.write(b"\r\n".join(lines) + b"\r\n\r\n" + answer.content)
        self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def _begin_head(self) -> None:
        """Starts the timer for a request's head: a client that does not send all of it in time is disconnected."""
        self._end_head()
        self._is_head, self._head_bytes = True, 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self.cycle and not self.cycle.response_complete:  # the request before is still being answered
            self._begin_head()
        else:
            self.transport.close()

    def _end_head(self) -> None:
        self._is_head = False
        if self._head_timer:
            self._head_timer.cancel()
            self._head_timer = None


class WebServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, hub: Hub) -> None:
        super().__init__(config)
        self._hub = hub

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._hub.close()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        before = {number: signal.signal(number, self.handle_exit) for number in STOP_SIGNALS}
        try:
            yield
        finally:
            for number, previous in before.items():
                signal.signal(number, previous)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit:
            os._exit(128 + sig)
        self.should_exit = True
        overdue = threading.Timer(STOP_SECONDS, os._exit, (OVERDUE,))
        overdue.daemon = True
        overdue.start()


def configuration(application: Application, proxies: Sequence[str]) -> uvicorn.Config:
    """Builds uvicorn's configuration.

    `proxies`: addresses whose X-Forwarded-… headers are trusted; empty: none. "unix": every client of our unix socket.
    """
    return uvicorn.Config(
        application,
        http=HttpConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=[UNIX_PEER if proxy == UNIX else proxy for proxy in proxies],
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=REQUEST_SECONDS,
    )


def raise_file_limit() -> None:
    """Raises the limit of open files as far as this user may; each stream is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
