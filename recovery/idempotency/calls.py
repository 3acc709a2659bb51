"""Turns an order and the terms into arguments of the ledger's Lua script, and its reply into an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recovery.connections import state
from recovery.connections.scripts import Part, script
from recovery.domain.idempotency import Answer, Claim, Order, Step, Terms, Word
from recovery.domain.refs import raw

SCRIPT = script(Path(__file__).parent / "lua" / "write" / "idempotency.lua")
KEYS = (
    state.IDEMPOTENCY_RECORDS,
    state.IDEMPOTENCY_RESULTS,
    state.IDEMPOTENCY_ENDS,
    state.IDEMPOTENCY_HELD,
    state.IDEMPOTENCY_NEWEST,
    state.IDEMPOTENCY_COUNTS,
    state.IDEMPOTENCY_SHARES,
)


def arguments(order: Order, terms: Terms) -> tuple[Part, ...]:
    """Returns what follows the digest or text of the script: the number of keys, the keys, the arguments."""
    own = (order.step.value, raw(order.key), str(order.token), order.span or terms.keep)
    bounds = (terms.linger, terms.keys, terms.bytes)
    return (len(KEYS), *KEYS, *own, *bounds, raw(order.by), raw(order.owner), order.result, order.dropped)


def answer(order: Order, reply: Any) -> Answer:
    word, now, packed, result = reply
    at = int(now)
    claim = Claim.decode(order.key, packed, at) if packed else None
    return Answer(Word(word.decode()), at, claim, result)


PRUNE = Order(Step.PRUNE, "")
