"""/api: shows the reference of every API call, and serves the OpenAPI document."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_safe

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.openapi import document

# -- reference page
# Presents the OpenAPI document: calls by their subject, and the schemas of requests and responses.


_REFERENCE = "#/components/schemas/"
_SAMPLES = {"deployment": "main", "base": "bull:mail", "id": "42", "number": "7", "state": "failed"}


@dataclass(frozen=True, slots=True)
class ReferenceType:
    """Type of a value, in words; `shape` names its schema if it has one."""

    words: str
    shape: str = ""


@dataclass(frozen=True, slots=True)
class ReferenceField:
    """A parameter, or one member of a shape."""

    name: str
    kind: ReferenceType
    is_required: bool
    text: str
    place: str = ""  # path, query


@dataclass(frozen=True, slots=True)
class ReferenceCall:
    """A method of one URL."""

    anchor: str
    method: str
    path: str
    title: str
    text: str
    scope: str
    parameters: tuple[ReferenceField, ...]
    body: ReferenceType | None
    status: str
    answer: ReferenceType
    example: str


@dataclass(frozen=True, slots=True)
class ReferenceSubject:
    name: str
    calls: tuple[ReferenceCall, ...]


@dataclass(frozen=True, slots=True)
class ReferenceSchema:
    name: str
    text: str
    fields: tuple[ReferenceField, ...]
    words: str = ""  # when it is no object


def subjects(home: str) -> tuple[ReferenceSubject, ...]:
    """Returns the calls in the order of the document; `home` is this site's own URL, for the examples."""
    found: dict[str, list[ReferenceCall]] = {}
    for path, calls in document()["paths"].items():
        for method, call in calls.items():
            found.setdefault(call["tags"][0], []).append(_call(home, path, method.upper(), call))
    return tuple(ReferenceSubject(name, tuple(calls)) for name, calls in found.items())


def shapes() -> tuple[ReferenceSchema, ...]:
    return tuple(_shape(name, schema) for name, schema in sorted(_schemas().items()) if not _is_query(name))


def _schemas() -> Mapping[str, Any]:
    found: Mapping[str, Any] = document()["components"]["schemas"]
    return found


def _is_query(name: str) -> bool:
    """Returns True for a schema whose members stand with the call as parameters."""
    return name.endswith("Query")


def _call(home: str, path: str, method: str, call: dict[str, Any]) -> ReferenceCall:
    status = next(iter(call["responses"]))
    body = call.get("requestBody")
    return ReferenceCall(
        anchor=call["operationId"],
        method=method,
        path=path,
        title=call["summary"],
        text=call.get("description", ""),
        scope=call["x-scope"],
        parameters=tuple(_parameter(parameter) for parameter in call["parameters"]),
        body=_kind(_content(body)) if body else None,
        status=status,
        answer=_kind(_content(call["responses"][status])),
        example=_example(home, path, method, call),
    )


def _content(part: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = part.get("content", {}).get("application/json", {}).get("schema", {})
    return found


def _parameter(parameter: dict[str, Any]) -> ReferenceField:
    schema = parameter["schema"]
    text = parameter.get("description", "")
    return ReferenceField(parameter["name"], _kind(schema), parameter["required"], text, parameter["in"])


def _shape(name: str, schema: dict[str, Any]) -> ReferenceSchema:
    required = schema.get("required", ())
    fields = tuple(
        ReferenceField(member, _kind(part), member in required, part.get("description", ""))
        for member, part in schema.get("properties", {}).items()
    )
    return ReferenceSchema(name, schema.get("description", ""), fields, "" if fields else _kind(schema).words)


def _kind(schema: dict[str, Any]) -> ReferenceType:
    """Names a type that has a schema of its own, and describes any other in words."""
    if reference := schema.get("$ref"):
        name = reference.removeprefix(_REFERENCE)
        return ReferenceType(name, name)
    if choices := schema.get("anyOf"):
        kinds = [_kind(choice) for choice in choices]
        return ReferenceType(
            " or ".join(kind.words for kind in kinds), next((kind.shape for kind in kinds if kind.shape), "")
        )
    if schema.get("type") == "array":
        item = _kind(schema.get("items", {}))
        return ReferenceType(f"list of {item.words}", item.shape)
    return ReferenceType(", ".join(_words(schema)))


def _words(schema: dict[str, Any]) -> Iterator[str]:
    if "enum" in schema:
        yield " | ".join(map(str, schema["enum"]))
    elif "const" in schema:
        yield str(schema["const"])
    else:
        yield schema.get("type", "anything")
    bounds = (("minimum", "from {:,}"), ("maximum", "to {:,}"), ("maxLength", "at most {:,} characters"))
    yield from (words.format(schema[name]) for name, words in bounds if schema.get(name))
    if schema.get("default") not in (None, "", False, [], {}):
        yield f"default {schema['default']}"


def _example(home: str, path: str, method: str, call: dict[str, Any]) -> str:
    filled = re.sub(r"{(\w+)}", lambda found: _SAMPLES.get(found[1], "1"), path)
    query = [p["name"] for p in call["parameters"] if p["in"] == "query" and p["required"]]
    asked = "&".join(f"{name}={_SAMPLES.get(name, '1')}" for name in query)
    lines = ['curl -H "Authorization: Bearer $TOKEN"', f"'{home}{filled}{'?' if asked else ''}{asked}'"]
    body = call.get("requestBody")
    if body and (sample := _sample(_content(body))):
        lines.insert(1, f"--json '{json.dumps(sample)}'")
    elif method != "GET":
        lines.insert(1, f"-X {method}")
    return " \\\n  ".join(lines)


def _sample(schema: dict[str, Any]) -> Any:
    name = schema.get("$ref", "").removeprefix(_REFERENCE)
    return _schemas().get(name, {}).get("example")


# -- views


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    home = request.build_absolute_uri("/").rstrip("/")
    context = {"subjects": subjects(home), "shapes": shapes(), "scopes": list(TokenScope)}
    return render(request, "api/reference.html", context)


@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    return JsonResponse(document())
