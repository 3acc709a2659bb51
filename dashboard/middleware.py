"""Middleware of every request: sets headers, requires a log-in, turns exceptions into pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import resolve_url
from django.utils.cache import patch_vary_headers
from django_htmx.http import HttpResponseClientRedirect
from django_htmx.middleware import HtmxDetails

from dashboard.accounts import sessions
from dashboard.accounts.login_limits import TooManyFailures
from dashboard.base import documents, error_pages
from dashboard.server import page_concurrency
from recovery.errors import Missing, StoreError, UnstallError

Next = Callable[[HttpRequest], HttpResponseBase]
BY_ITSELF = "X-Unstall-By-Itself"  # static/js/refresh.js, charts.js and retry.js send it


def headers(get_response: Next) -> Next:
    """Sets Cache-Control, because pages show payloads, and Vary, because one URL answers a page and a fragment."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        patch_vary_headers(response, ["HX-Request"])
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    return middleware


def mentions(get_response: Next) -> Next:
    """Turns each mention of a document in a page or a fragment into a link, wherever the words come from."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        is_html = response.headers.get("Content-Type", "").startswith("text/html")
        if is_html and isinstance(response, HttpResponse) and b"docs/" in response.content:
            response.content = documents.link_documents(response.content.decode(response.charset)).encode(
                response.charset
            )
            response.headers["Content-Length"] = str(len(response.content))  # it was set before
        return response

    return middleware


def session_use(get_response: Next) -> Next:
    """Records that a user uses their session. Requests that a page makes by itself are no use of it."""

    def middleware(request: HttpRequest) -> HttpResponseBase:
        response = get_response(request)
        if request.session.accessed and BY_ITSELF not in request.headers:
            sessions.note_use(request)
        return response

    return middleware


class LoginRequired(LoginRequiredMiddleware):
    """Requires a log-in for every view that does not opt out. A fragment's request leads the whole tab to it."""

    def process_view(
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase], *given: Any
    ) -> HttpResponseBase | None:
        refused: HttpResponseBase | None = super().process_view(request, view_func, *given)
        if refused is None and getattr(view_func, "login_required", True):
            page_concurrency.note_valid(request)
        return refused

    def handle_no_permission(  # type: ignore[override]  # any response will do; the base names its own kind
        self, request: HttpRequest, view_func: Callable[..., HttpResponseBase]
    ) -> HttpResponseBase:
        htmx = HtmxDetails(request)
        if not htmx:
            return super().handle_no_permission(request, view_func)
        login = redirect_to_login(htmx.current_url_abs_path or "/", resolve_url(settings.LOGIN_URL))
        return HttpResponseClientRedirect(login.url)


class ErrorPagesMiddleware:
    """Turns what the engine raises into a page, or a fragment, with a status."""

    def __init__(self, get_response: Next) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        return self._get_response(request)

    def process_exception(self, request: HttpRequest, fault: Exception) -> HttpResponse | None:
        if isinstance(fault, TooManyFailures):
            return error_pages.logins_paused(request, fault)
        if isinstance(fault, Missing):
            return error_pages.missing(request, fault)
        if isinstance(fault, StoreError):
            return error_pages.store_down(request, fault)
        if isinstance(fault, UnstallError):
            return error_pages.refused(request, fault)
        if error_pages.is_database_error(fault):
            return error_pages.database_down(request, fault)
        return None
