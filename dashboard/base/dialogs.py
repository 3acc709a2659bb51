"""Asks before a change, and reports that it was made: in a dialog, or as pages for browsers without scripts."""

from __future__ import annotations

import json
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme, urlencode

from recovery.actions.audit.audit_log import REASON_LIMIT

NO_REASON = "Enter a reason. It is recorded in the audit log."
_DIALOG, _PAGE = "base/dialogs/_dialog.html", "base/dialogs/page.html"


def ask(request: HttpRequest, form: str, title: str, context: dict[str, Any], *, about: str = "") -> HttpResponse:
    """Shows a form, with the reason written so far. `form`: its template. `about`: the name that ends the title."""
    told = {
        "form_name": form,
        "title": title,
        "about": about,
        "is_dialog": is_dialog(request),
        "reason": reason(request),
    }
    # A dialog that says no is an answer like any other: htmx shows what comes with 200.
    response = render(request, _DIALOG if is_dialog(request) else _PAGE, told | context)
    response["HX-Push-Url"] = "false"  # the dialog's link is no place to come back to
    return response


def done(request: HttpRequest, words: str, back: str) -> HttpResponse:
    """Closes the dialog with a toast; the page behind it refreshes."""
    if not is_dialog(request):
        messages.success(request, words)
        return redirect(back)
    response = HttpResponse(status=204)
    response["HX-Trigger"] = json.dumps({"unstall:acted": None, "unstall:toast": {"text": words, "tone": "good"}})
    return response


def go(request: HttpRequest, url: str) -> HttpResponse:
    """Redirects to the page that shows the progress."""
    if not is_dialog(request):
        return redirect(url)
    response = HttpResponse(status=204)
    response["HX-Redirect"] = url
    return response


def reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip()[:REASON_LIMIT]


def lacks_reason(request: HttpRequest) -> dict[str, str]:
    """Returns the error of a missing reason by the name of its field; empty when there is a reason."""
    return {} if reason(request) else {"reason": NO_REASON}


def is_dialog(request: HttpRequest) -> bool:
    return "HX-Request" in request.headers


def post_url(request: HttpRequest, address: str) -> str:
    """Returns the URL that the form is posted to, with the page to go back to."""
    said = return_url(request, "")
    return f"{address}{'&' if '?' in address else '?'}{urlencode({'back': said})}" if said else address


def return_url(request: HttpRequest, otherwise: str) -> str:
    """Returns the page that the user came from if it is one of ours; else `otherwise`."""
    said = request.GET.get("back", "")
    is_ours = said.startswith("/") and url_has_allowed_host_and_scheme(said, allowed_hosts=None)
    return said if is_ours else otherwise
