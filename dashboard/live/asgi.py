"""Serves /live/… as a small ASGI application beside Django, so that an open stream occupies no thread.

In order, for one stream: 1. check path and method, 2. authenticate the user, 3. check the limits, 4. send the headers
and the opening at once, 5. send the newest event each time there is one, 6. send a farewell when the server ends it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from django.db import DatabaseError

from dashboard.live import events
from dashboard.live.hub import Hub, LiveLimitReached, LiveStream
from dashboard.live.session import Visitor
from recovery import shared_clock

Message = Mapping[str, Any]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Write = Callable[[Any, Send], Awaitable[None]]  # a stream, of whatever kind

log = logging.getLogger(__name__)

PATH = "/live/events"
ABORT = "unstall.abort"  # extension in the ASGI scope by which our server lets a stream drop its connection
COME_BACK_SECONDS = (10, 30)  # Retry-After, spread
PLAIN = b"text/plain; charset=utf-8"

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store, no-transform"),  # no-transform: nothing on the way may compress it
    (b"x-accel-buffering", b"no"),
    (b"connection", b"close"),  # no request follows a stream, and shutdown need not wait for one
]


class LiveEventsApp:
    """ASGI application of /live/events, over the streams of a hub."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] != PATH:
            return await refuse(send, 404, "Unknown stream.")
        if (visitor := await authenticate(self.hub, scope, send)) is None:
            return None
        try:
            stream = self.hub.open(visitor, abort_of(scope))
        except LiveLimitReached as full:
            return await refuse(send, 503, str(full), retry_after_headers())
        await run(self.hub, stream, receive, send)
        return None


async def authenticate(hub: Hub, scope: Scope, send: Send) -> Visitor | None:
    """Returns the user of a request, or None after it sent a refusal."""
    try:
        if scope["method"] != "GET":
            await refuse(send, 405, "Streams accept GET only.", [(b"allow", b"GET")])
        elif visitor := await hub.visitor(cookies_of(scope)):
            return visitor
        else:
            await refuse(send, 401, "Log in first.")
    except DatabaseError:
        log.exception("cannot check the session of a stream request")
        await refuse(send, 503, "The database does not answer.", retry_after_headers())
    return None


async def write_events(stream: LiveStream, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
    await send_chunk(stream, send, events.opening(shared_clock.now()))
    while (event := await stream.next()) is not None:
        await send_chunk(stream, send, event)
    await send_chunk(stream, send, events.bye(stream.ending) if stream.ending else b"", more=False)


async def run(hub: Hub, stream: LiveStream, receive: Receive, send: Send, write: Write = write_events) -> None:
    """Writes a stream until the client disconnects, the server ends it, or nothing is left to write."""
    departure = asyncio.create_task(_watch(stream, receive))
    try:
        async with stream.limit:
            await write(stream, send)
    except TimeoutError:
        stream.cut()
        await asyncio.wait((departure,), timeout=1)  # until the server has seen the connection close
    finally:
        departure.cancel()
        hub.leave(stream)


async def send_chunk(stream: LiveStream, send: Send, body: bytes, *, more: bool = True) -> None:
    await stream.send(send({"type": "http.response.body", "body": body, "more_body": more}))


async def _watch(stream: LiveStream, receive: Receive) -> None:
    """Notices a client that disconnects, even while nothing is sent. A body, if any, is read and dropped."""
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.depart()


async def refuse(send: Send, status: int, why: str, headers: Headers | None = None, kind: bytes = PLAIN) -> None:
    """Sends a short answer, in plain text unless `kind` says otherwise."""
    body = why.encode()
    plain = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": plain + (headers or [])})
    await send({"type": "http.response.body", "body": body})


def retry_after_headers() -> Headers:
    return [(b"retry-after", str(random.randint(*COME_BACK_SECONDS)).encode())]  # noqa: S311 -- jitter


def cookies_of(scope: Scope) -> str:
    return "; ".join(value.decode("latin-1") for name, value in scope["headers"] if name == b"cookie")


def abort_of(scope: Scope) -> Callable[[], None]:
    """Returns a function that drops this connection; it does nothing under a server without our extension."""
    abort: Callable[[], None] = (scope.get("extensions") or {}).get(ABORT, lambda: None)
    return abort
