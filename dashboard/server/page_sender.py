"""Sends a page to its client. One that reads slowly delays no other, and one that takes nothing is disconnected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dashboard.live.asgi import ABORT, Message, Scope, Send

SEND_SECONDS = 30.0  # for one piece of an answer to be taken, as for an event of a stream


class PageSender:
    """Sends one answer. `answered` is called once Django has made it, before its first byte is sent."""

    def __init__(self, scope: Scope, send: Send, answered: Callable[[], None]) -> None:
        self._abort = scope.get("extensions", {}).get(ABORT)
        self._send = send
        self._answered = answered

    async def send(self, message: Message) -> None:
        """Sends one message. Raises CancelledError for a client that takes nothing: to Django it has disconnected."""
        if message["type"] == "http.response.start":
            self._answered()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError:
            if self._abort:
                self._abort()
            raise asyncio.CancelledError from None
