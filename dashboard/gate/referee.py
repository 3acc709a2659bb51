"""Which of several web processes lets the next one in: the first that sets the mark in the state store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from redis.asyncio import Redis

from recovery.connections import faults, state
from recovery.errors import StoreError

DEADLINE_SECONDS = 0.25  # whoever asks waits for it; a store that needs longer is away


class Ruling(NamedTuple):
    """`admitted_at`: when another process let somebody in, by our clock; None and not `mine`: nobody knows."""

    mine: bool
    admitted_at: int | None = None
    trouble: str = ""


class Referee:
    """`store` gives the client of this event loop."""

    def __init__(self, store: Callable[[], Redis]) -> None:
        self._store = store

    async def ask(self, server: str, now: int, settling: int) -> Ruling:
        """One round trip. `settling`: for how long nobody else is let in, in ms."""
        key, client = state.gate_settling(server), self._store()
        question = client.pipeline(transaction=True)
        question.set(key, str(now), nx=True, px=settling)
        question.pttl(key)
        try:
            with faults.guarded(client):
                async with asyncio.timeout(DEADLINE_SECONDS):
                    mine, left = await question.execute()
        except StoreError as error:
            return Ruling(False, trouble=str(error))
        return Ruling(True) if mine else Ruling(False, now - max(0, settling - left))
