"""/api: shows the reference of every API call, and serves the OpenAPI document."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_safe

from dashboard.accounts.token_scopes import TokenScope
from dashboard.api import reference_page
from dashboard.api.openapi import document


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    home = request.build_absolute_uri("/").rstrip("/")
    context = {"subjects": reference_page.subjects(home), "shapes": reference_page.shapes(), "scopes": list(TokenScope)}
    return render(request, "api/reference.html", context)


@require_GET
def openapi(request: HttpRequest) -> HttpResponse:
    return JsonResponse(document())
