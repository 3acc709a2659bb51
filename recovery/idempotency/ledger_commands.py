"""Operator commands on the idempotency ledger: release the claim of a dead worker, forget what was completed."""

from __future__ import annotations

from recovery.actions import action_reason
from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Actor
from recovery.domain.idempotency import ClaimReply, ClaimRequest, ClaimStep, ClaimStepResult, KeyClaim
from recovery.domain.identifiers import printable
from recovery.errors import BadOrder, Forbidden, StoreError
from recovery.idempotency.ledger import Ledger
from recovery.idempotency.store_isolation import StoreIsolationGuard
from recovery.stores.registry import registry

RELEASE, FORGET, NOT_DONE = "release claim", "forget completed", "claim not changed"  # acts of the audit's notes
KEY_TOLD = 600  # characters of a key in the audit: nearly every key fits
guard = StoreIsolationGuard(registry)
_MOVED = {
    ClaimStepResult.LATE: "It was claimed meanwhile with another token.",
    ClaimStepResult.FREE: "It is no longer claimed.",
    ClaimStepResult.CLAIMED: "It is claimed, and not completed.",
    ClaimStepResult.COMPLETED: "It was completed meanwhile.",
}


def ledger() -> Ledger:
    """Returns the ledger, after its guard has checked the store. Raises NotApart, ConfigError, StoreError."""
    guard.check()
    return Ledger(registry().state(), registry().config.idempotency)


def show(key: str) -> ClaimReply:
    """Returns what the ledger has under a key. Raises as `ledger` does."""
    return ledger().do(ClaimRequest(ClaimStep.SHOW, key))


def release(actor: Actor, claim: KeyClaim, reason: str) -> int:
    """Releases exactly the claim that was shown, by its token, so that the next claimer need not wait.

    Returns the number of its note. Raises Forbidden, BadOrder, NotRecorded, and as `ledger` does, each with nothing
    done.
    """
    if not actor.may_act:
        raise Forbidden("Releasing a claim needs the permission to act.")
    return _changed(actor, RELEASE, ClaimRequest(ClaimStep.RELEASE, claim.key, claim.token), claim, reason)


def forget(actor: Actor, claim: KeyClaim, reason: str) -> int:
    """Forgets completed work, so that it may be claimed, and done, once more. Raises as `release` does."""
    if not actor.may_bulk:
        raise Forbidden("Forgetting completed work needs the permission to act in bulk.")
    return _changed(actor, FORGET, ClaimRequest(ClaimStep.FORGET, claim.key, claim.token), claim, reason)


def _changed(actor: Actor, act: str, order: ClaimRequest, claim: KeyClaim, reason: str) -> int:
    """Checks 1. the reason, 2. the store; 3. commits the note; 4. makes the change, and notes if it had no effect."""
    reason = action_reason.require_reason(reason)
    kept = ledger()
    told = {
        "key": printable(claim.key)[:KEY_TOLD],
        "token": claim.token,
        "owner": printable(claim.owner),
        "by": claim.by,
    }
    number = audit_log.note(actor, act, reason, told | {"since": claim.since, "state": claim.state.value})
    try:
        answer = kept.do(order)
    except StoreError as error:
        audit_log.note(actor, NOT_DONE, reason, told | {"note": number, "why": f"Not known: {error}"})
        raise
    if answer.is_refused:
        why = _MOVED[answer.word]
        audit_log.note(actor, NOT_DONE, reason, told | {"note": number, "why": why})
        raise BadOrder(f"{why} Nothing was done.")
    return number
