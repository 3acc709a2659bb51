"""Defines claims on work that must not run twice: a claim by key, its owner, and what is kept once the work is done."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.identifiers import decode_name
from recovery.domain.time_units import DAY, MINUTE, SECOND

KEY_LIMIT = 512  # bytes: a name, not a payload
OWNER_LIMIT = 200  # characters
RESULT_LIMIT = 65_536  # bytes of JSON; what is larger belongs into a store of its own, and its address here
TTL = (SECOND, 7 * DAY)  # shorter than a second a garbage collection loses it; longer than a week no client waits
KEEP = (MINUTE, 365 * DAY)
_FIELDS = 8
_LARGEST = 2**63  # of a time, a token or a size


class IdempotencyState(StrEnum):
    """State of an idempotency key."""

    FREE = "free"  # not claimed, or released, or its time is over
    CLAIMED = "claimed"
    EXPIRED = "expired"  # its time to live ended before it was completed
    COMPLETED = "completed"


class ClaimStep(StrEnum):
    CLAIM = "claim"
    RENEW = "renew"
    COMPLETE = "complete"
    RELEASE = "release"
    FORGET = "forget"
    SHOW = "show"
    PRUNE = "prune"


class ClaimStepResult(StrEnum):
    """Result of a step."""

    WON = "won"
    RENEWED = "renewed"
    DONE = "done"
    AGAIN = "again"  # completed before with the same token: the answer was lost
    RELEASED = "released"
    FORGOTTEN = "forgotten"
    SHOWN = "shown"
    PRUNED = "pruned"
    # Refused:
    CLAIMED = "claimed"
    COMPLETED = "completed"
    LATE = "late"  # another token is the newest
    FREE = "free"  # nothing is claimed
    FULL = "full"  # as many keys as are allowed


REFUSALS = frozenset(
    {
        ClaimStepResult.CLAIMED,
        ClaimStepResult.COMPLETED,
        ClaimStepResult.LATE,
        ClaimStepResult.FREE,
        ClaimStepResult.FULL,
    }
)


@dataclass(frozen=True, slots=True)
class KeyClaim:
    """A claim. `until`: when it expires, or when it was completed; `ends`: when it is deleted. All in ms, by the
    store's clock.

    `dropped`: bytes of a result that was not kept; `by`: the name of the machine token, `owner` what the caller said.
    """

    key: str
    state: IdempotencyState
    token: int
    since: int
    until: int
    ends: int
    dropped: int
    by: str
    owner: str

    @property
    def is_completed(self) -> bool:
        return self.state is IdempotencyState.COMPLETED

    @classmethod
    def decode(cls, key: str, packed: bytes, now: int) -> KeyClaim:
        """Parses a stored claim. Raises ValueError on what this version did not write."""
        state, token, since, until, ends, dropped, by, owner = decode_name(packed).split("\t", _FIELDS - 1)
        kept = IdempotencyState(state)
        expired = kept is IdempotencyState.CLAIMED and _number(until) <= now
        shown = IdempotencyState.EXPIRED if expired else kept
        numbers = {"until": _number(until), "ends": _number(ends), "dropped": _number(dropped)}
        return cls(key, shown, _number(token), _number(since), **numbers, by=by, owner=owner)


def _number(written: str) -> int:
    """Parses a time, a token or a size. Raises ValueError, also for numbers that cannot be one."""
    number = int(written)
    if abs(number) >= _LARGEST:
        raise ValueError("a number is too large")
    return number


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Requested step. `span`: how long it is claimed, or kept, in ms; `result`: JSON, b"" for none."""

    step: ClaimStep
    key: str
    token: int = 0
    span: int = 0
    by: str = ""
    owner: str = ""
    result: bytes = b""
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class ClaimReply:
    """Reply to a step. `claim` None: the key is free. `now`: the store's clock."""

    word: ClaimStepResult
    now: int
    claim: KeyClaim | None
    result: bytes | None = None

    @property
    def is_refused(self) -> bool:
        return self.word in REFUSALS

    @property
    def state(self) -> IdempotencyState:
        return self.claim.state if self.claim else IdempotencyState.FREE


@dataclass(frozen=True, slots=True)
class IdempotencyLimits:
    """Limits from the configuration: milliseconds, keys, bytes."""

    keep: int = 7 * DAY
    linger: int = 7 * DAY
    keys: int = 100_000
    bytes: int = 256 << 20
