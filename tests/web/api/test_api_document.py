"""The OpenAPI document and the page made of it: complete, true, and from this house alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from enum import Enum
from typing import Any, get_args

import pytest
from django.urls import URLPattern
from pydantic import BaseModel

from dashboard import urls
from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.api.openapi import document
from dashboard.api.urls import api
from dashboard.idempotency import asgi as idempotency
from dashboard.idempotency.openapi import IdempotencyKey
from dashboard.idempotency.schemas import BODIES
from tests.support.machines import Machine, refused, told
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db
METHODS = {"get", "post", "put"}


def calls() -> dict[tuple[str, str], dict[str, Any]]:
    return {(method, path): call for path, found in document()["paths"].items() for method, call in found.items()}


def references(part: Any) -> set[str]:
    if isinstance(part, dict):
        here = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return here.union(*map(references, part.values()))
    return set().union(*map(references, part)) if isinstance(part, list) else set()


def test_it_is_a_valid_openapi_document() -> None:
    made = document()
    assert made["openapi"].startswith("3.1")
    assert made["info"]["title"]
    assert made["info"]["version"]
    for (method, path), call in calls().items():
        assert method in METHODS
        named = {parameter["name"] for parameter in call["parameters"] if parameter["in"] == "path"}
        assert named == set(re.findall(r"{(\w+)}", path))
        assert all(parameter["required"] for parameter in call["parameters"] if parameter["in"] == "path")
        assert all(re.fullmatch(r"[1-5]\d\d|default", status) for status in call["responses"])
        assert all(told["description"] for told in call["responses"].values())
    ids = [call["operationId"] for call in calls().values()]
    assert len(ids) == len(set(ids))
    known = {f"#/components/schemas/{name}" for name in made["components"]["schemas"]}
    assert references(made) <= known


def _shapes(kind: Any, seen: set[Any]) -> Iterator[type]:
    """Every class of ours that a client gets a name for."""
    if kind in seen:
        return
    seen.add(kind)
    for part in get_args(kind):
        yield from _shapes(part, seen)
    if isinstance(kind, type) and issubclass(kind, Enum | BaseModel):
        yield kind
        for field in getattr(kind, "model_fields", {}).values():
            yield from _shapes(field.annotation, seen)


def test_no_two_classes_share_the_name_of_a_component() -> None:
    """The framework keeps the last one, and clients would get the one for the other."""
    operations = [
        made for _, router in api._routers for view in router.path_operations.values() for made in view.operations
    ]
    models = [model for made in operations for model in (*made.models, *made.response_models.values())]
    seen: set[Any] = set()
    named: dict[str, set[str]] = defaultdict(set)
    for root in (*models, *BODIES.values(), IdempotencyKey):
        for shape in _shapes(root, seen):
            named[shape.__name__].add(f"{shape.__module__}.{shape.__qualname__}")
    known = {name: places for name, places in named.items() if name in document()["components"]["schemas"]}
    assert len(known) > 80
    assert {name: places for name, places in known.items() if len(places) > 1} == {}


def test_every_address_of_the_api_is_in_it() -> None:
    routes = {re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", f"/{pattern.pattern}") for pattern in _patterns()}
    assert routes | {idempotency.PATH, *idempotency.STEPS} == {path for _, path in calls()}


def _patterns() -> list[URLPattern]:
    beside = ("api-reference", "api-document", "api-nowhere")
    return [found for found in urls.API if found.name not in beside]


def test_every_call_says_its_scope_and_how_it_fails() -> None:
    for call in calls().values():
        assert call["x-scope"] in {scope.value for scope in TokenScope}
        assert call["security"] == [{"Token": [call["x-scope"]]}]
        assert call["responses"]["default"]["content"]["application/json"]["schema"]["$ref"].endswith("/Failure")
        assert call["description"]


def test_a_failure_has_the_shape_that_the_document_says() -> None:
    shape = document()["components"]["schemas"]["Failure"]["properties"]["error"]["properties"]
    assert set(shape) == set(refused(Machine().get("queues"), 401, "token_missing"))


def test_the_document_is_for_people_and_tokens_and_not_for_strangers() -> None:
    address = "/api/v1/openapi.json"
    assert told(browser(person(UserRole.VIEWER)).get(address))["info"]["title"] == "Unstall"
    assert told(Machine(TokenScope.AUDIT).get(address)) == told(browser(person(UserRole.VIEWER)).get(address))
    refused(browser().get(address), 401, "token_missing")
    refused(browser(person(UserRole.ADMIN)).post(address), 401, "token_missing")


def test_the_page_shows_every_call_and_every_shape() -> None:
    page = browser(person(UserRole.VIEWER)).get("/api").content.decode()
    for (method, path), call in calls().items():
        assert f'id="{call["operationId"]}"' in page
        assert f"<code>{path}</code>" in page
        assert method.upper() in page
    targets = set(re.findall(r'href="#([^"]+)"', page))
    assert targets - {"main"} <= set(re.findall(r'id="([^"]+)"', page))
    assert len(set(re.findall(r'id="([^"]+)"', page))) == len(re.findall(r' id="([^"]+)"', page))


def test_the_page_asks_no_other_host_and_runs_nothing_of_others() -> None:
    answer = browser(person(UserRole.VIEWER)).get("/api")
    page = answer.content.decode()
    assert not re.search(r"(src|href|action)=[\"']?(https?:)?//", page)
    assert all("/static/" in source for source in re.findall(r'<script[^>]*src="([^"]+)"', page))
    assert "'unsafe" not in answer["Content-Security-Policy"]


def test_the_examples_name_this_site() -> None:
    page = browser(person(UserRole.VIEWER)).get("/api", headers={"Host": "localhost"}).content.decode()
    assert "http://localhost/api/v1/queues" in page


def test_the_page_is_closed_to_strangers() -> None:
    assert browser().get("/api").status_code == 302
