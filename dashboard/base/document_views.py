"""/docs/NAME: shows the documentation that is installed with this version."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from dashboard.base import documents


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "base/documents/index.html", {"names": sorted(documents.names())})


@require_safe
def page(request: HttpRequest, name: str) -> HttpResponse:
    try:
        blocks = documents.document(name)
    except KeyError:
        raise Http404("Document not found.") from None
    return render(request, "base/documents/page.html", {"name": name, "blocks": blocks})
