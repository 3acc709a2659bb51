"""Describes the idempotency calls for the OpenAPI document; they are served beside Django, so ninja cannot."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from dashboard.accounts.token_scopes import TokenScope
from dashboard.idempotency.asgi import PATH
from dashboard.idempotency.schemas import (
    IdempotencyBody,
    IdempotencyClaim,
    IdempotencyComplete,
    IdempotencyRelease,
    IdempotencyRenew,
)
from recovery.domain.idempotency import KEY_LIMIT, IdempotencyState

_TEMPLATE = "#/components/schemas/{model}"


class IdempotencyKey(BaseModel):
    """Current state of a key. A refusal has it beside the member error."""

    key: str
    state: IdempotencyState
    now: int = Field(description="Clock of the store; all times of keys use it.")
    token: int | None = Field(
        description="Fencing token of the newest claim. It increases with each claim and is never reused."
    )
    owner: str | None = Field(description="Client name given by the claim.")
    by: str | None = Field(description="Name of its API token.")
    since: int | None = Field(description="When it was claimed.")
    until: int | None = Field(description="When the claim expires or expired.")
    completed_at: int | None
    kept_until: int | None = Field(description="When the key is deleted.")
    dropped: int | None = Field(description="Bytes of its result, when that was too large to store.")
    result: Any = Field(description="Result stored on completion.")


_CALLS: tuple[tuple[type[IdempotencyBody], str, str, str, str], ...] = (
    (
        IdempotencyClaim,
        "201",
        "Claim a key",
        "201: you hold it until it expires. 409: another client holds it, or it is completed. Else: no claim.",
        "You hold the key.",
    ),
    (
        IdempotencyRenew,
        "200",
        "Renew a claim",
        "409 if you no longer hold the key: stop the work.",
        "The claim expires later.",
    ),
    (
        IdempotencyComplete,
        "200",
        "Complete a key",
        "Stores the result. A repeated call gets the same response. 409 if another client has claimed the key since.",
        "The result is stored.",
    ),
    (
        IdempotencyRelease,
        "200",
        "Release a claim",
        "For work that was not done and had no effect: another client may claim the key at once.",
        "The key is free.",
    ),
)


def paths() -> dict[str, Any]:
    """Returns the paths in the form in which ninja writes its own."""
    made: dict[str, Any] = {f"{PATH}/{call[0].step}": {"post": _post(*call)} for call in _CALLS}
    return {PATH: {"get": _get()}} | made


def schemas() -> dict[str, Any]:
    kinds = [(call[0], "validation") for call in _CALLS]
    _, found = models_json_schema([*kinds, (IdempotencyKey, "serialization")], ref_template=_TEMPLATE)  # type: ignore[list-item]
    defined: dict[str, Any] = found["$defs"]
    return defined


def _post(kind: type[IdempotencyBody], status: str, summary: str, text: str, answered: str) -> dict[str, Any]:
    name = kind.__name__
    return _call(f"idempotency_{kind.step}", summary, text) | {
        "parameters": [],
        "requestBody": {"content": _json(name), "required": True},
        "responses": {status: _answer(answered), "409": _answer("Refused, with the current state of the key.")},
    }


def _get() -> dict[str, Any]:
    key = {"type": "string", "maxLength": KEY_LIMIT, "minLength": 1}
    place = {"in": "query", "name": "key", "required": True, "schema": key, "description": "Percent-encoded."}
    return _call("idempotency_show", "Get a key", "Current state; an unclaimed key is free.") | {
        "parameters": [place],
        "responses": {"200": _answer("OK")},
    }


def _call(id: str, summary: str, text: str) -> dict[str, Any]:
    told = {"operationId": id, "summary": summary, "description": text, "tags": ["Idempotency keys"]}
    return told | {"x-scope": TokenScope.IDEMPOTENCY.value}


def _answer(text: str) -> dict[str, Any]:
    return {"description": text, "content": _json(IdempotencyKey.__name__)}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _TEMPLATE.format(model=name)}}}
