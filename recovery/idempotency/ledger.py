"""Performs the steps of the ledger, for threads and for an event loop: one round trip each, never sent twice."""

from __future__ import annotations

from typing import Any, cast

import redis
import redis.asyncio

from recovery.connections import faults
from recovery.domain.idempotency import Answer, Order, Terms
from recovery.errors import Garbled
from recovery.idempotency import calls


class Ledger:
    """Ledger on a client of the state store. After a StoreError it is not known whether the step was done."""

    def __init__(self, store: redis.Redis, terms: Terms) -> None:
        self._store = store
        self._terms = terms

    def do(self, order: Order) -> Answer:
        arguments = calls.arguments(order, self._terms)
        with faults.guarded(self._store):
            try:
                reply = self._run("EVALSHA", calls.SCRIPT.digest, *arguments)
            except redis.exceptions.NoScriptError:  # it did not run
                reply = self._run("EVAL", calls.SCRIPT.text, *arguments)
        return _answer(self._store, order, reply)

    def prune(self) -> int:
        """Deletes some expired records; returns how many."""
        return int(self.do(calls.PRUNE).result or 0)

    def _run(self, *words: Any) -> Any:
        return self._store.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py's own


class LoopLedger:
    """Ledger for the event loop that `store` belongs to."""

    def __init__(self, store: redis.asyncio.Redis, terms: Terms) -> None:
        self._store = store
        self._terms = terms

    async def do(self, order: Order) -> Answer:
        arguments = calls.arguments(order, self._terms)
        with faults.guarded(self._store):
            try:
                reply = await self._run("EVALSHA", calls.SCRIPT.digest, *arguments)
            except redis.exceptions.NoScriptError:  # it did not run
                reply = await self._run("EVAL", calls.SCRIPT.text, *arguments)
        return _answer(self._store, order, reply)

    async def _run(self, *words: Any) -> Any:
        return await cast(Any, self._store).execute_command(*words)


def _answer(store: redis.Redis | redis.asyncio.Redis, order: Order, reply: Any) -> Answer:
    try:
        return calls.answer(order, reply)
    except (ValueError, TypeError) as error:
        raise Garbled(faults.target_of(store), "its answer has an unexpected format") from error
