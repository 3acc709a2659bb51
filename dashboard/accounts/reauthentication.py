"""Asks for the password again before irreversible actions and changes of accounts: a stolen session is not enough.

docs/accounts.md lists which ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.http import urlencode
from django_htmx.http import HttpResponseClientRedirect

RECENT_SECONDS = 15 * 60  # for which one password counts
SESSION_NAME = "password_at"

View = Callable[..., HttpResponseBase]


def note(request: HttpRequest) -> None:
    """Records in the session that the password was right, just now."""
    request.session[SESSION_NAME] = int(time.time())


def is_recent(request: HttpRequest) -> bool:
    return time.time() - float(request.session.get(SESSION_NAME, 0)) < RECENT_SECONDS


def ask(request: HttpRequest, back: str) -> HttpResponse:
    """Redirects to the page that asks for the password, which leads on to `back`; for a fragment, the whole tab."""
    address = f"{reverse('password-again')}?{urlencode({'next': back})}"
    return HttpResponseClientRedirect(address) if request.headers.get("HX-Request") else redirect(address)


def needs_recent_password(page: str = "") -> Callable[[View], View]:
    """Asks for the password first. A form is not kept meanwhile: `page` is where to fill it in anew, "" the view."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if is_recent(request):
                return view(request, *args, **kwargs)
            return ask(request, reverse(page) if page else request.get_full_path())

        guarded.needs_recent_password = True  # type: ignore[attr-defined]  # read by the test that walks every URL
        return guarded

    return decorate
