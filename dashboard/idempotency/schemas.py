"""Defines the request bodies of the idempotency API, validates them, and turns them into orders for the ledger."""

from __future__ import annotations

import json
from typing import Annotated, Any, ClassVar, NoReturn

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from dashboard.api.error_responses import PROBLEMS_TOLD, ApiError
from recovery.domain.idempotency import KEEP, KEY_LIMIT, OWNER_LIMIT, RESULT_LIMIT, TTL, ClaimRequest, ClaimStep

_TOKEN_LIMIT = 2**53 - 1  # what every language's number can hold
_REFERENCE = "See /api for every call."


def _named(key: str) -> str:
    try:
        size = len(key.encode())
    except UnicodeEncodeError:
        raise ValueError("a lone surrogate is not a valid character") from None
    if size > KEY_LIMIT:
        raise ValueError(f"{size:,} bytes as UTF-8; the limit is {KEY_LIMIT:,}")
    return key


def _on_one_line(owner: str) -> str:
    if not owner.isprintable():
        raise ValueError("use printable characters on one line")
    return owner


Key = Annotated[
    str,
    Field(min_length=1, max_length=KEY_LIMIT, description=f"Idempotency key: any text of up to {KEY_LIMIT} bytes."),
    AfterValidator(_named),
]
Token = Annotated[int, Field(ge=1, le=_TOKEN_LIMIT, description="Fencing token from the response to the claim.")]
Ttl = Annotated[int, Field(ge=TTL[0], le=TTL[1], description="Milliseconds until the claim expires unless renewed.")]


class IdempotencyBody(BaseModel):
    model_config = ConfigDict(extra="forbid")
    step: ClassVar[ClaimStep]
    key: Key

    def order(self, by: str) -> ClaimRequest:
        """Returns the order for the ledger. `by`: the name of the caller's token."""
        return ClaimRequest(self.step, self.key, **self._told(), by=by)

    def _told(self) -> dict[str, Any]:
        """Returns the fields of the order besides the key."""
        return {}


class IdempotencyClaim(IdempotencyBody):
    """Claim of a key, before the work starts."""

    model_config = ConfigDict(json_schema_extra={"example": {"key": "charge:order-17", "ttl": 60000, "owner": "w-3"}})
    step = ClaimStep.CLAIM
    ttl: Ttl
    owner: Annotated[str, Field(max_length=OWNER_LIMIT), AfterValidator(_on_one_line)] = Field(
        default="",
        description="Client name for humans, and to recognize your own claim after a lost response: make it unique.",
    )

    def _told(self) -> dict[str, Any]:
        return {"span": self.ttl, "owner": self.owner}


class IdempotencyComplete(IdempotencyBody):
    """Completion of a key, after the work is done."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"key": "charge:order-17", "token": 1800000000000123, "result": {"charge": "ch_1"}}
        }
    )
    step = ClaimStep.COMPLETE
    token: Token
    result: Any = Field(
        default=None, description=f"Any JSON of up to {RESULT_LIMIT:,} bytes; later claims of the key get it."
    )
    keep: int | None = Field(
        default=None, ge=KEEP[0], le=KEEP[1], description="Milliseconds until the key is deleted; null: keep_days."
    )

    def _told(self) -> dict[str, Any]:
        result = b"" if self.result is None else _packed(self.result)
        dropped = len(result) if len(result) > RESULT_LIMIT else 0
        return {"token": self.token, "span": self.keep or 0, "result": b"" if dropped else result, "dropped": dropped}


class IdempotencyRelease(IdempotencyBody):
    """Release of a key whose work was not done."""

    model_config = ConfigDict(json_schema_extra={"example": {"key": "charge:order-17", "token": 1800000000000123}})
    step = ClaimStep.RELEASE
    token: Token

    def _told(self) -> dict[str, Any]:
        return {"token": self.token}


class IdempotencyRenew(IdempotencyBody):
    """Renewal of a claim, for work that takes longer."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"key": "charge:order-17", "token": 1800000000000123, "ttl": 60000}}
    )
    step = ClaimStep.RENEW
    token: Token
    ttl: Ttl

    def _told(self) -> dict[str, Any]:
        return {"token": self.token, "span": self.ttl}


class IdempotencyShow(IdempotencyBody):
    """Request for the current state of a key."""

    step = ClaimStep.SHOW


# Request body of each step, by the last segment of its URL.
BODIES: dict[str, type[IdempotencyBody]] = {
    kind.step.value: kind for kind in (IdempotencyClaim, IdempotencyRenew, IdempotencyComplete, IdempotencyRelease)
}


def parse(kind: type[IdempotencyBody], written: bytes) -> IdempotencyBody:
    """Raises Refusal."""
    try:
        told = json.loads(written, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise ApiError(400, "bad_request", "The body is not valid JSON.", _REFERENCE) from None
    return validate(kind, told)


def validate(kind: type[IdempotencyBody], told: Any) -> IdempotencyBody:
    """Validates a body. Raises Refusal, without the input: it may be a secret in the wrong field."""
    try:
        return kind.model_validate(told)
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(map(str, one['loc'])) or 'body'}: {one['msg']}" for one in problems[:PROBLEMS_TOLD]]
    raise ApiError(422, "invalid", "; ".join(told), _REFERENCE)


def _packed(result: Any) -> bytes:
    """Encodes a result. Raises Refusal for what JSON cannot express; a lone surrogate is escaped, not encoded."""
    try:
        return json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(result, allow_nan=False, separators=(",", ":")).encode()
    except (ValueError, RecursionError):
        raise ApiError(422, "invalid", "result: it contains a number that is too large for JSON.", _REFERENCE) from None


def _no_number(written: str) -> NoReturn:
    raise ValueError(f"{written} is not JSON")
