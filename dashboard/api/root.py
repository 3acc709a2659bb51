"""Builds the API: its routers, its exception handlers, its URL patterns."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from dashboard.api import (
    actions,
    alerts,
    audit,
    bulk,
    faults,
    jobs,
    n8n,
    orphans,
    policies,
    queues,
    scanners,
    servers,
    sweeps,
)
from dashboard.api.door import door

PREFIX = "api/v1"

api = NinjaAPI(
    title="Unstall",
    version="1",
    description="Queues, jobs and actions on them. Times are milliseconds since 1970; null: unknown.",
    docs_url=None,
    openapi_url=None,
    urls_namespace="api",
)
for room in (queues, jobs, orphans, n8n, actions, bulk, policies, scanners, sweeps, servers, alerts, audit):
    api.add_router("", room.router)


# ninja has handlers of its own for all but the first.
@api.exception_handler(Exception)
@api.exception_handler(Http404)
@api.exception_handler(HttpError)
@api.exception_handler(ValidationError)
def failed(request: HttpRequest, fault: Exception) -> HttpResponse:
    return faults.answer(request, fault)


def nowhere(request: HttpRequest, rest: str = "") -> HttpResponse:
    raise Http404


def patterns() -> list[URLPattern]:
    """Returns flat URL patterns, each behind the token check. The last one is for what does not exist."""
    made = (pattern for pattern in api.urls[0] if isinstance(pattern, URLPattern) and pattern.name != "api-root")
    routes = {str(pattern.pattern): pattern for pattern in made}  # one per method, all with the same view
    found = [
        path(f"{PREFIX}/{route}", door(pattern.callback), name=f"api-{pattern.name}")
        for route, pattern in routes.items()
        if pattern.callback is not None
    ]
    return [*found, path("api/<path:rest>", door(nowhere), name="api-nowhere")]
