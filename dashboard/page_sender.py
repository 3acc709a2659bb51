"""Sends a page to its reader. One that reads slowly holds up nobody else, and one that takes nothing is dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from dashboard.live.stream import ABORT, Message, Scope, Send

SEND_SECONDS = 30.0  # for one piece of an answer to be taken, as for an event of a stream


class PageSender:
    """`answered` is called once Django has made the answer, before its first byte is sent."""

    def __init__(self, scope: Scope, send: Send, answered: Callable[[], None]) -> None:
        self._abort = scope.get("extensions", {}).get(ABORT)
        self._send = send
        self._answered = answered

    async def send(self, message: Message) -> None:
        """Raises CancelledError for a reader that takes nothing: Django takes that for one who has left."""
        if message["type"] == "http.response.start":
            self._answered()
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError:
            if self._abort:
                self._abort()
            raise asyncio.CancelledError from None
