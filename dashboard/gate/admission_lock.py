"""Decides which of several web processes may admit a caller: the first to set a key in the state store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from redis.asyncio import Redis

from recovery.errors import StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.state import state_keys

DEADLINE_SECONDS = 0.25  # the caller waits for it; a store that needs longer counts as unreachable


class AdmissionRuling(NamedTuple):
    """Result of the arbitration.

    `admitted_at`: when another process admitted a caller, by our clock; None and not `mine`: not known.
    """

    mine: bool
    admitted_at: int | None = None
    trouble: str = ""


class AdmissionArbiter:
    """Arbitration by SET NX. `store` returns the client of this event loop."""

    def __init__(self, store: Callable[[], Redis]) -> None:
        self._store = store

    async def ask(self, server: str, now: int, settling: int) -> AdmissionRuling:
        """Tries to take the admission, in one round trip. `settling`: ms in which no other process admits a caller."""
        key, client = state_keys.gate_settling(server), self._store()
        question = client.pipeline(transaction=True)
        question.set(key, str(now), nx=True, px=settling)
        question.pttl(key)
        try:
            with redis_errors.guarded(client):
                async with asyncio.timeout(DEADLINE_SECONDS):
                    mine, left = await question.execute()
        except StoreError as error:
            return AdmissionRuling(False, trouble=str(error))
        return AdmissionRuling(True) if mine else AdmissionRuling(False, now - max(0, settling - left))
