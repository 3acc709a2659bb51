"""What is wrong with the house as a whole: fetched anew when that changes, not with every snapshot."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def banner(request: HttpRequest) -> HttpResponse:
    return render(request, "frame/_banner.html")
