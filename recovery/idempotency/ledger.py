"""Performs the steps of the ledger, for threads and for an event loop: one round trip each, never sent twice."""

from __future__ import annotations

from typing import Any, cast

import redis
import redis.asyncio

from recovery.domain.idempotency import ClaimReply, ClaimRequest, IdempotencyLimits
from recovery.errors import Garbled
from recovery.idempotency import script_call
from recovery.stores.redis import redis_errors


class Ledger:
    """Ledger on a client of the state store. After a StoreError it is not known whether the step was done."""

    def __init__(self, store: redis.Redis, terms: IdempotencyLimits) -> None:
        self._store = store
        self._terms = terms

    def do(self, order: ClaimRequest) -> ClaimReply:
        arguments = script_call.arguments(order, self._terms)
        with redis_errors.guarded(self._store):
            try:
                reply = self._run("EVALSHA", script_call.SCRIPT.digest, *arguments)
            except redis.exceptions.NoScriptError:  # it did not run
                reply = self._run("EVAL", script_call.SCRIPT.text, *arguments)
        return _answer(self._store, order, reply)

    def prune(self) -> int:
        """Deletes some expired records; returns how many."""
        return int(self.do(script_call.PRUNE).result or 0)

    def _run(self, *words: Any) -> Any:
        return self._store.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py's own


class LoopLedger:
    """Ledger for the event loop that `store` belongs to."""

    def __init__(self, store: redis.asyncio.Redis, terms: IdempotencyLimits) -> None:
        self._store = store
        self._terms = terms

    async def do(self, order: ClaimRequest) -> ClaimReply:
        arguments = script_call.arguments(order, self._terms)
        with redis_errors.guarded(self._store):
            try:
                reply = await self._run("EVALSHA", script_call.SCRIPT.digest, *arguments)
            except redis.exceptions.NoScriptError:  # it did not run
                reply = await self._run("EVAL", script_call.SCRIPT.text, *arguments)
        return _answer(self._store, order, reply)

    async def _run(self, *words: Any) -> Any:
        return await cast(Any, self._store).execute_command(*words)


def _answer(store: redis.Redis | redis.asyncio.Redis, order: ClaimRequest, reply: Any) -> ClaimReply:
    try:
        return script_call.answer(order, reply)
    except (ValueError, TypeError) as error:
        raise Garbled(redis_errors.target_of(store), "its answer has an unexpected format") from error
