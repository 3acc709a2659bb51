"""The calls of the ledger for the API's document: they stand beside Django, so the framework does not know them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field
from pydantic.json_schema import models_json_schema

from dashboard.once.app import PATH
from dashboard.once.bodies import Body, OnceClaim, OnceComplete, OnceRelease, OnceRenew
from dashboard.scopes import Scope
from recovery.domain.once import KEY_LIMIT, IdempotencyState

_TEMPLATE = "#/components/schemas/{model}"


class OnceKey(BaseModel):
    """One key as it is now. Of a refusal it stands beside the member error."""

    key: str
    state: IdempotencyState
    now: int = Field(description="The clock of the ledger; all its times are told by it.")
    token: int | None = Field(description="Of the newest claim. It rises with each claim, and never comes again.")
    owner: str | None = Field(description="What the claimer said.")
    by: str | None = Field(description="The name of its machine token.")
    since: int | None = Field(description="When it was claimed.")
    until: int | None = Field(description="When the claim lapses, or did.")
    completed_at: int | None
    kept_until: int | None = Field(description="When the key is forgotten.")
    dropped: int | None = Field(description="Bytes of its result, when that was too large to be kept.")
    result: Any = Field(description="What it was completed with.")


_CALLS: tuple[tuple[type[Body], str, str, str, str], ...] = (
    (
        OnceClaim,
        "201",
        "Claim work",
        "201: it is yours until it lapses. 409: somebody has it, or it was done, with its result. Else it is no claim.",
        "It is yours.",
    ),
    (OnceRenew, "200", "Renew a claim", "409 when it is not yours any more: stop the work.", "It lapses later."),
    (
        OnceComplete,
        "200",
        "Complete work",
        "With its result. The same again is answered the same. 409 when somebody has claimed it since.",
        "It is kept.",
    ),
    (
        OnceRelease,
        "200",
        "Release a claim",
        "For work that was not done and has no effect: the next may claim it at once.",
        "It is free.",
    ),
)


def paths() -> dict[str, Any]:
    """As the framework writes its own."""
    made: dict[str, Any] = {f"{PATH}/{call[0].step}": {"post": _post(*call)} for call in _CALLS}
    return {PATH: {"get": _get()}} | made


def schemas() -> dict[str, Any]:
    kinds = [(call[0], "validation") for call in _CALLS]
    _, found = models_json_schema([*kinds, (OnceKey, "serialization")], ref_template=_TEMPLATE)  # type: ignore[list-item]
    defined: dict[str, Any] = found["$defs"]
    return defined


def _post(kind: type[Body], status: str, summary: str, text: str, answered: str) -> dict[str, Any]:
    name = kind.__name__
    return _call(f"once_{kind.step}", summary, text) | {
        "parameters": [],
        "requestBody": {"content": _json(name), "required": True},
        "responses": {status: _answer(answered), "409": _answer("Refused, with the key as it is.")},
    }


def _get() -> dict[str, Any]:
    key = {"type": "string", "maxLength": KEY_LIMIT, "minLength": 1}
    place = {"in": "query", "name": "key", "required": True, "schema": key, "description": "Percent-encoded."}
    return _call("once_show", "One key", "As it is now; a key that nobody has claimed is free.") | {
        "parameters": [place],
        "responses": {"200": _answer("OK")},
    }


def _call(id: str, summary: str, text: str) -> dict[str, Any]:
    told = {"operationId": id, "summary": summary, "description": text, "tags": ["Once"]}
    return told | {"x-scope": Scope.ONCE.value}


def _answer(text: str) -> dict[str, Any]:
    return {"description": text, "content": _json(OnceKey.__name__)}


def _json(name: str) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _TEMPLATE.format(model=name)}}}
