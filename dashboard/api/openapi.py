"""Makes the OpenAPI document: what ninja generates, with the scopes and the one shape of failures."""

from __future__ import annotations

from functools import cache
from typing import Any

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.urls import PREFIX, api
from dashboard.idempotency import openapi as idempotency

FAILURE = "Failure"
_TEXT = {"type": "string"}
_FAILURE = {
    "title": FAILURE,
    "type": "object",
    "description": "Every response that is not 2xx.",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "advice"],
            "properties": {"code": _TEXT, "message": _TEXT, "advice": _TEXT},
        }
    },
}
_REFERENCE = {
    "description": "Error. Retry-After says when to retry, if a retry can help.",
    "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{FAILURE}"}}},
}


@cache
def document() -> dict[str, Any]:
    """Returns the document, the same for everybody: it holds no address of ours and nothing of any queue."""
    made: dict[str, Any] = dict(api.get_openapi_schema(path_prefix=f"/{PREFIX}/"))
    made["paths"] = {**made["paths"], **idempotency.paths()}
    made["components"]["schemas"].update(idempotency.schemas())
    for calls in made["paths"].values():
        for call in calls.values():
            _complete(call)
    for schema in made["components"]["schemas"].values():
        _unwrap_references(schema)
    made["components"]["schemas"][FAILURE] = _FAILURE
    scopes = "\n".join(f"{scope}: {scope.may}" for scope in TokenScope)
    made["components"]["securitySchemes"] = {
        "Token": {"type": "http", "scheme": "bearer", "description": f"An API token. Scopes:\n{scopes}"}
    }
    return made


def _complete(call: dict[str, Any]) -> None:
    call["security"] = [{"Token": [call["x-scope"]]}]
    folder, _, name = call["operationId"].removeprefix("dashboard_").partition("_api_")
    call["operationId"] = f"{folder}_{name}" if name else folder
    call["responses"] = {str(status): told for status, told in call["responses"].items()} | {"default": _REFERENCE}


def _unwrap_references(schema: dict[str, Any]) -> None:
    """Replaces `allOf: [$ref]` with `$ref`: openapi-python-client omits each operation with a default beside allOf.

    The default is dropped with it, because the members of the referenced schema have their own.
    """
    members = schema.get("properties", {})
    for name, member in members.items():
        match member:
            case {"allOf": [reference]}:
                members[name] = reference
