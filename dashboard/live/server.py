"""uvicorn as this project runs it: streams end before the server waits, and no signal is ignored.

On the first SIGTERM, SIGINT or SIGHUP: 1. accept nobody new, 2. end the streams with a farewell, 3. finish the
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

import uvicorn
from django.http import HttpResponse
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from dashboard.api import faults
from dashboard.live.hub import Hub
from dashboard.live.stream import ABORT, Receive, Scope, Send
from recovery.processes.signals import ASKING

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

REQUEST_SECONDS = 3  # for requests in hand when a stop is asked
STOP_SECONDS = 10.0  # for the whole stop; a thread that hangs in a store must not hold it
KEEP_ALIVE_SECONDS = 75  # longer than the proxies in front (60 s), so that they close first and never meet a closed one
FILES_WANTED = 8192  # two thousand streams and their neighbours; many systems start a process with 1,024
ADDRESS_LIMIT = 65_535  # bytes of a request's address; httptools parses no longer one
OVERDUE = 1
UNIX = "unix"
UNIX_PEER = "0.0.0.0"  # noqa: S104 -- not bound: an address, as the tables of logins need one, that nobody comes from


class AddressTooLong(Exception):
    """The address of a request has more than ADDRESS_LIMIT bytes."""


class Connection(HttpToolsProtocol):
    """One connection; streams may drop it, and a peer on a unix socket has an address that no other has."""

    url = b""  # of the request that is being read

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # narrower upstream too
        super().connection_made(transport)
        self.client = self.client or (UNIX_PEER, 0)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {ABORT: self.transport.abort}  # type: ignore[dict-item]  # ours

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > ADDRESS_LIMIT:
            raise AddressTooLong  # the parser ends with it, and send_400_response answers

    def send_400_response(self, msg: str) -> None:
        """Answers a request that cannot be parsed, below /api/ in the shape of its failures, and closes."""
        status = 400
        if len(self.url) > ADDRESS_LIMIT:
            status, msg = 414, f"The address has more than {ADDRESS_LIMIT:,} bytes."
        answer = HttpResponse(msg, status=status, content_type="text/plain; charset=utf-8")
        if self.url.startswith(faults.ROOT.encode()):
            answer = faults.of_site(status, msg)
        answer["Content-Length"], answer["Connection"] = str(len(answer.content)), "close"
        head = f"HTTP/1.1 {status} {answer.reason_phrase}\r\n".encode()
        self.transport.write(head + answer.serialize_headers() + b"\r\n\r\n" + answer.content)
        self.transport.close()


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
        before = {number: signal.signal(number, self.handle_exit) for number in ASKING}
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
    """`proxies`: whose X-Forwarded-… headers are believed; nobody's when empty. "unix": whoever reaches our socket."""
    return uvicorn.Config(
        application,
        http=Connection,
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
    """As far as this user may; each stream is an open file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(FILES_WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
