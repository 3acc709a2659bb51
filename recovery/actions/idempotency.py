"""Operator commands on the idempotency ledger: release the claim of a dead worker, forget what was completed."""

from __future__ import annotations

from recovery.actions import audit, reasons
from recovery.connections.registry import registry
from recovery.domain.acting import Actor
from recovery.domain.idempotency import Answer, Claim, Order, Step, Word
from recovery.domain.refs import shown
from recovery.errors import BadOrder, Forbidden, StoreError
from recovery.idempotency.apart import Guard
from recovery.idempotency.ledger import Ledger

RELEASE, FORGET, NOT_DONE = "release claim", "forget completed", "claim not changed"  # acts of the audit's notes
KEY_TOLD = 600  # characters of a key in the audit: nearly every key fits
guard = Guard(registry)
_MOVED = {
    Word.LATE: "It was claimed meanwhile with another token.",
    Word.FREE: "It is no longer claimed.",
    Word.CLAIMED: "It is claimed, and not completed.",
    Word.COMPLETED: "It was completed meanwhile.",
}


def ledger() -> Ledger:
    """Returns the ledger, after its guard has checked the store. Raises NotApart, ConfigError, StoreError."""
    guard.check()
    return Ledger(registry().state(), registry().config.idempotency)


def show(key: str) -> Answer:
    """Returns what the ledger has under a key. Raises as `ledger` does."""
    return ledger().do(Order(Step.SHOW, key))


def release(actor: Actor, claim: Claim, reason: str) -> int:
    """Releases exactly the claim that was shown, by its token, so that the next claimer need not wait.

    Returns the number of its note. Raises Forbidden, BadOrder, NotRecorded, and as `ledger` does, each with nothing
    done.
    """
    if not actor.may_act:
        raise Forbidden("Releasing a claim needs the permission to act.")
    return _changed(actor, RELEASE, Order(Step.RELEASE, claim.key, claim.token), claim, reason)


def forget(actor: Actor, claim: Claim, reason: str) -> int:
    """Forgets completed work, so that it may be claimed, and done, once more. Raises as `release` does."""
    if not actor.may_bulk:
        raise Forbidden("Forgetting completed work needs the permission to act in bulk.")
    return _changed(actor, FORGET, Order(Step.FORGET, claim.key, claim.token), claim, reason)


def _changed(actor: Actor, act: str, order: Order, claim: Claim, reason: str) -> int:
    """Checks 1. the reason, 2. the store; 3. commits the note; 4. makes the change, and notes if it had no effect."""
    reason = reasons.given(reason)
    kept = ledger()
    told = {"key": shown(claim.key)[:KEY_TOLD], "token": claim.token, "owner": shown(claim.owner), "by": claim.by}
    number = audit.note(actor, act, reason, told | {"since": claim.since, "state": claim.state.value})
    try:
        answer = kept.do(order)
    except StoreError as error:
        audit.note(actor, NOT_DONE, reason, told | {"note": number, "why": f"Not known: {error}"})
        raise
    if answer.is_refused:
        why = _MOVED[answer.word]
        audit.note(actor, NOT_DONE, reason, told | {"note": number, "why": why})
        raise BadOrder(f"{why} Nothing was done.")
    return number
