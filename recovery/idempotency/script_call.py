"""Turns an order and the terms into arguments of the ledger's Lua script, and its reply into an answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recovery.domain.idempotency import (
    ClaimReply,
    ClaimRequest,
    ClaimStep,
    ClaimStepResult,
    IdempotencyLimits,
    KeyClaim,
)
from recovery.domain.identifiers import encode_name
from recovery.stores.redis.scripts import Part, script
from recovery.stores.state import state_keys

SCRIPT = script(Path(__file__).parent / "lua" / "write" / "idempotency.lua")
KEYS = (
    state_keys.IDEMPOTENCY_RECORDS,
    state_keys.IDEMPOTENCY_RESULTS,
    state_keys.IDEMPOTENCY_ENDS,
    state_keys.IDEMPOTENCY_HELD,
    state_keys.IDEMPOTENCY_NEWEST,
    state_keys.IDEMPOTENCY_COUNTS,
    state_keys.IDEMPOTENCY_SHARES,
)


def arguments(order: ClaimRequest, terms: IdempotencyLimits) -> tuple[Part, ...]:
    """Returns what follows the digest or text of the script: the number of keys, the keys, the arguments."""
    own = (order.step.value, encode_name(order.key), str(order.token), order.span or terms.keep)
    bounds = (terms.linger, terms.keys, terms.bytes)
    return (
        len(KEYS),
        *KEYS,
        *own,
        *bounds,
        encode_name(order.by),
        encode_name(order.owner),
        order.result,
        order.dropped,
    )


def answer(order: ClaimRequest, reply: Any) -> ClaimReply:
    word, now, packed, result = reply
    at = int(now)
    claim = KeyClaim.decode(order.key, packed, at) if packed else None
    return ClaimReply(ClaimStepResult(word.decode()), at, claim, result)


PRUNE = ClaimRequest(ClaimStep.PRUNE, "")
