"""Serves the banner with problems of the whole installation; pages fetch it when these change."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe


@require_safe
def banner(request: HttpRequest) -> HttpResponse:
    return render(request, "base/frame/_banner.html")
