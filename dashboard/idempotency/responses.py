"""Turns an answer of the ledger into HTTP: a status, and in every case the current state of the key."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from dashboard.live.asgi import Headers
from recovery.domain.idempotency import ClaimReply, ClaimStepResult, IdempotencyState, KeyClaim
from recovery.domain.identifiers import printable

RETRY_MOST = 3_600  # seconds, also for a claim that lasts longer
FULL_RETRY = 60
_ADVICE = {
    ClaimStepResult.CLAIMED: "Wait until it is completed or expires; see Retry-After.",
    ClaimStepResult.COMPLETED: "The work is done. Use the result and do nothing.",
    ClaimStepResult.LATE: "There is a newer claim: the work may have been done twice. Do not complete the key.",
    ClaimStepResult.FREE: "The claim expired long ago or was released. Claim the key again before you continue.",
    ClaimStepResult.FULL: "Raise keys in [idempotency], or complete keys with a shorter keep.",
}
_MESSAGES = {
    ClaimStepResult.CLAIMED: "The key is claimed.",
    ClaimStepResult.COMPLETED: "The key is completed.",
    ClaimStepResult.LATE: "This token is not the newest token of the key.",
    ClaimStepResult.FREE: "The key is not claimed.",
    ClaimStepResult.FULL: "The store is full, or this token exceeds its share. Nothing was claimed.",
}


@dataclass(frozen=True, slots=True)
class IdempotencyReply:
    status: int
    body: bytes
    headers: Headers


def reply(key: str, answer: ClaimReply) -> IdempotencyReply:
    if answer.word is ClaimStepResult.FULL:
        return _refused(503, key, answer, FULL_RETRY)
    if answer.is_refused:
        return _refused(409, key, answer, _left(answer))
    return IdempotencyReply(
        201 if answer.word is ClaimStepResult.WON else 200, _body(facts(key, answer), answer.result), []
    )


def facts(key: str, answer: ClaimReply) -> dict[str, Any]:
    """Returns the state of a key without its result; a field that does not apply is None."""
    told: dict[str, Any] = {"key": key, "state": answer.state.value, "now": answer.now}
    return told | _of_claim(answer.claim)


def _of_claim(claim: KeyClaim | None) -> dict[str, Any]:
    return {
        "token": claim.token if claim else None,
        "owner": (claim.owner if claim else "") or None,
        "by": (claim.by if claim else "") or None,
        "since": claim.since if claim else None,
        "until": claim.until if claim and not claim.is_completed else None,
        "completed_at": claim.until if claim and claim.is_completed else None,
        "kept_until": claim.ends if claim else None,
        "dropped": (claim.dropped if claim else 0) or None,
    }


def _refused(status: int, key: str, answer: ClaimReply, retry: int) -> IdempotencyReply:
    code = "keys_full" if answer.word is ClaimStepResult.FULL else answer.word.value
    error = {"code": code, "message": _message(answer), "advice": _ADVICE[answer.word]}
    headers = [(b"retry-after", str(retry).encode())] if retry else []
    return IdempotencyReply(status, _body({"error": error} | facts(key, answer), answer.result), headers)


def _message(answer: ClaimReply) -> str:
    owner = answer.claim.owner if answer.claim else ""
    by = f" The newest claim belongs to {printable(owner)!r}." if owner and answer.word is ClaimStepResult.LATE else ""
    return _MESSAGES[answer.word] + by


def _left(answer: ClaimReply) -> int:
    """Returns the seconds until the claim of another client expires; 0 if waiting does not help."""
    claim = answer.claim
    if answer.word is not ClaimStepResult.CLAIMED or claim is None or claim.state is not IdempotencyState.CLAIMED:
        return 0
    return min(RETRY_MOST, max(1, math.ceil((claim.until - answer.now) / 1000)))


def _body(told: dict[str, Any], result: bytes | None) -> bytes:
    """Returns the JSON body; the result goes into it as the client sent it, without decoding."""
    return json.dumps(told, separators=(",", ":")).encode("ascii")[:-1] + b',"result":' + (result or b"null") + b"}"
