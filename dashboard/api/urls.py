"""Builds the API: its routers, its exception handlers, its URL patterns."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError

from dashboard.actions import api as actions_api
from dashboard.actions.bulk import api as bulk_api
from dashboard.alerts import api as alerts_api
from dashboard.api import error_responses
from dashboard.api.view_decorator import api_view
from dashboard.audit import api as audit_api
from dashboard.n8n import api as n8n_api
from dashboard.queues import api as queues_api
from dashboard.queues.job import api as job_api
from dashboard.scanners import api as scanners_api
from dashboard.scanners import startup_sweep_api
from dashboard.scanners.policies import api as policies_api
from dashboard.servers import api as servers_api
from dashboard.stuck import api as stuck_api

PREFIX = "api/v1"

api = NinjaAPI(
    title="Unstall",
    version="1",
    description="Queues, jobs and actions on them. Times are milliseconds since 1970; null: unknown.",
    docs_url=None,
    openapi_url=None,
    urls_namespace="api",
)
for room in (
    queues_api,
    job_api,
    stuck_api,
    n8n_api,
    actions_api,
    bulk_api,
    policies_api,
    scanners_api,
    startup_sweep_api,
    servers_api,
    alerts_api,
    audit_api,
):
    api.add_router("", room.router)


# ninja has handlers of its own for all but the first.
@api.exception_handler(Exception)
@api.exception_handler(Http404)
@api.exception_handler(HttpError)
@api.exception_handler(ValidationError)
def failed(request: HttpRequest, fault: Exception) -> HttpResponse:
    return error_responses.answer(request, fault)


def unknown_url(request: HttpRequest, rest: str = "") -> HttpResponse:
    raise Http404


def patterns() -> list[URLPattern]:
    """Returns flat URL patterns, each behind the token check. The last one is for what does not exist."""
    made = (pattern for pattern in api.urls[0] if isinstance(pattern, URLPattern) and pattern.name != "api-root")
    routes = {str(pattern.pattern): pattern for pattern in made}  # one per method, all with the same view
    found = [
        path(f"{PREFIX}/{route}", api_view(pattern.callback), name=f"api-{pattern.name}")
        for route, pattern in routes.items()
        if pattern.callback is not None
    ]
    return [*found, path("api/<path:rest>", api_view(unknown_url), name="api-nowhere")]
