"""Presents idempotency keys: each in words, with its result as far as the user may read it."""

from __future__ import annotations

from dataclasses import dataclass

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.base.job_rows import brief
from dashboard.base.redaction import PayloadPart, PayloadRedactor
from recovery.domain.idempotency import IdempotencyState, KeyClaim
from recovery.domain.identifiers import printable
from recovery.domain.time_units import age
from recovery.idempotency.queries import IdempotencyCounts, IdempotencyRow

RESULT_TOLD = 160  # characters in a row

_STANDING = {
    IdempotencyState.CLAIMED: "expires in {}",
    IdempotencyState.EXPIRED: "expired {} ago, never completed",
    IdempotencyState.COMPLETED: "completed {} ago",
}
_BRIEFLY = {
    IdempotencyState.CLAIMED: "{} left",
    IdempotencyState.EXPIRED: "{} ago",
    IdempotencyState.COMPLETED: "{} ago",
}
RISKS = {
    IdempotencyState.CLAIMED: "A slow worker continues: then the work is done twice, and that worker notices too late.",
    IdempotencyState.EXPIRED: "A slow worker can no longer complete it, and the next one does the work again.",
    IdempotencyState.COMPLETED: "The next client that claims the key does the work again and does not get the result.",
}
EFFECTS = {
    IdempotencyState.CLAIMED: "The key is free at once and can be claimed. Its fencing token becomes invalid.",
    IdempotencyState.EXPIRED: "The key is deleted. An expired key can be claimed in any case.",
    IdempotencyState.COMPLETED: "The key is free, and its result is deleted.",
}


@dataclass(frozen=True, slots=True)
class IdempotencyKeyLine:
    """An idempotency key. `standing`: until when, in words; `act`: the name of its button, "" when there is none."""

    claim: KeyClaim
    key: str
    url: str
    standing: str
    briefly: str  # the same beside the word for its state
    owner: str
    by: str
    result: str
    size: int
    act: str = ""
    act_url: str = ""
    tone: str = ""


@dataclass(frozen=True, slots=True)
class IdempotencyTab:
    name: str
    title: str
    count: int
    is_here: bool


def line(row: IdempotencyRow, now: int, see: PayloadRedactor, *, may_act: bool, may_forget: bool) -> IdempotencyKeyLine:
    claim = row.claim
    told = see.payload(None, PayloadPart.RESULT, row.result.decode("utf-8", "replace")) if row.result else ""
    act, url = _act(claim, may_act=may_act, may_forget=may_forget)
    return IdempotencyKeyLine(
        claim,
        brief(printable(claim.key)),
        reverse("idempotency-key", args=[claim.key]),
        standing(claim, now),
        _BRIEFLY[claim.state].format(age(abs(claim.until - now))),
        printable(claim.owner),
        printable(claim.by),
        told if len(told) <= RESULT_TOLD else f"{told[:RESULT_TOLD]}…",
        row.size,
        act,
        url,
        "warn" if claim.state is IdempotencyState.EXPIRED else "",
    )


def standing(claim: KeyClaim, now: int) -> str:
    return _STANDING[claim.state].format(age(abs(claim.until - now)))


def tabs(counts: IdempotencyCounts, here: IdempotencyState | None) -> list[IdempotencyTab]:
    found = (
        (None, "All", counts.keys),
        (IdempotencyState.CLAIMED, "Claimed", counts.claimed),
        (IdempotencyState.EXPIRED, "Expired", counts.expired),
        (IdempotencyState.COMPLETED, "Completed", counts.completed),
    )
    return [IdempotencyTab(state.value if state else "", title, count, state is here) for state, title, count in found]


def _act(claim: KeyClaim, *, may_act: bool, may_forget: bool) -> tuple[str, str]:
    """Returns label and URL of the key's button, bound to the claim that is shown."""
    name = "Forget" if claim.is_completed else "Release"
    if not (may_forget if claim.is_completed else may_act):
        return "", ""
    address = reverse(f"idempotency-{name.lower()}", args=[claim.key])
    return name, f"{address}?{urlencode({'token': claim.token})}"
