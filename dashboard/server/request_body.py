"""Reads a whole request before Django sees it: a client that sends slowly waits here, where waiting holds no thread."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from dashboard.live.asgi import Message, Receive

BODY_LIMIT = 2 * 1024 * 1024  # bytes: forms and pasted configuration; Django refuses more than 2.5 MB anyway
BODY_SECONDS = 20.0  # for all of it; a form is a few hundred bytes
INCOMING_LIMIT = 32 * 1024 * 1024  # bytes of all bodies that Django has not begun with: not complete yet, or waiting
RETRY_SECONDS = 2
SMALL = 16 * 1024  # bytes of a body that is taken even then: the size of a form


class RequestRefused(Exception):
    """Raised to refuse a request. `status` and the text are the response, `retry` the seconds before a retry."""

    def __init__(self, status: int, why: str, retry: int = 0) -> None:
        self.status = status
        self.retry = retry
        super().__init__(why)


class ClientDisconnected(Exception):
    """Raised when the client disconnects before the request is complete: no response is needed."""


async def read_body(receive: Receive, waiting: ExitStack) -> Receive:
    """Reads the body. Returns a `receive` that hands it out at once, then the server's messages. Raises Refused, Left.

    Closing `waiting` says that the request is being answered: until then its body counts towards INCOMING_LIMIT.
    """
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _body(receive, waiting)
    except TimeoutError:
        raise RequestRefused(408, "The request took too long to arrive.") from None
    message: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replay() -> Message:
        nonlocal message
        if message is None:
            return await receive()
        complete, message = message, None
        return complete

    return replay


async def _body(receive: Receive, waiting: ExitStack) -> bytes:
    body = bytearray()
    waiting.callback(lambda: _incoming.leave(len(body)))
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnected
        part = message.get("body", b"")
        body += part
        _incoming.bytes += len(part)
        if len(body) > BODY_LIMIT:
            raise RequestRefused(413, f"The request is larger than {BODY_LIMIT:,} bytes.")
        if _incoming.bytes > INCOMING_LIMIT and len(body) > SMALL:
            raise RequestRefused(503, "Too many large requests are arriving at once. Try again.", RETRY_SECONDS)
        if not message.get("more_body", False):
            return bytes(body)


class _Incoming:
    """Bytes that have arrived of request bodies that wait for Django, in this process."""

    bytes = 0

    def leave(self, size: int) -> None:
        self.bytes -= size


_incoming = _Incoming()
