"""Renders error pages: what happened, what it means, and the nearest useful page; for a fragment, a notice."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

from django.db import InterfaceError, OperationalError, ProgrammingError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse

from dashboard.accounts.login_limits import TooManyFailures
from dashboard.api import error_responses
from recovery.domain.identifiers import printable
from recovery.errors import (
    DeploymentMissing,
    Forbidden,
    JobMissing,
    Missing,
    NotRecorded,
    QueueMissing,
    ServerMissing,
    StoreError,
    UnstallError,
)

log = logging.getLogger(__name__)

RETRY_SECONDS = 5  # a store that comes back is seen within this time
_TARGET = "#trouble"
_ASKED_AGAIN = "The page retries automatically."
_MISSING_IN_SQLITE = ("no such table", "no such column")
_UNDEFINED = ("42P01", "42703")  # of PostgreSQL: a table, a column
_DATABASE_SILENT = (
    "The database does not answer",
    "Check that it is running and that DATABASE_URL is correct. manage.py doctor shows the cause.",
)
_DATABASE_UNMIGRATED = (
    "The database is not migrated",
    "Its tables are missing or outdated. Run manage.py migrate, and check DATABASE_URL.",
)
_PERHAPS_DONE = "It is not known whether the change was made. Check before you repeat it."


@dataclass(frozen=True, slots=True)
class ErrorPage:
    """Contents of an error page."""

    status: int
    title: str
    text: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    advice: str = ""
    link: str = ""
    link_text: str = ""
    retry: int = 0  # seconds


def missing(request: HttpRequest, fault: Missing) -> HttpResponse:
    """Returns 404 with a link to the nearest page that still exists."""
    kwargs = request.resolver_match.kwargs if request.resolver_match else {}
    deployment, base = kwargs.get("deployment", ""), kwargs.get("base", "")
    if isinstance(fault, JobMissing) and base:
        link, link_text = reverse("queue", args=[deployment, base]), f"Queue: {printable(base)}"
        title, text = "Job not found", "It finished and was removed, or a user removed it."
    elif isinstance(fault, QueueMissing | DeploymentMissing):
        link, link_text = reverse("overview"), "All queues"
        what = "Queue" if isinstance(fault, QueueMissing) else "Deployment"
        title, text = f"{what} not found", "It was removed or renamed, or it has no jobs yet."
    elif isinstance(fault, ServerMissing):
        link, link_text = reverse("servers"), "All servers"
        title, text = "Server not found", "It has not reported within a week, or it has another name."
    else:
        link, link_text, title, text = reverse("overview"), "All queues", "Not found", str(fault)
    return render_error(request, ErrorPage(404, title, text, link=link, link_text=link_text))


def logins_paused(request: HttpRequest, fault: TooManyFailures) -> HttpResponse:
    """Returns 429 after too many failures; until the pause is over the right password is refused too."""
    minutes = max(1, round(fault.seconds / 60))
    text = f"Too many failed logins for this user or from your IP address. Try again in {minutes} minutes."
    advice = (
        "Browsers you have logged in from before have their own limit. "
        "An admin can create a one-time link for you under Users."
    )
    response = render_error(request, ErrorPage(429, "Logins are paused", text, advice=advice))
    response["Retry-After"] = str(fault.seconds)
    return response


def store_down(request: HttpRequest, fault: StoreError) -> HttpResponse:
    """Returns 503 with the target without its password, the error, advice, and a retry for GET."""
    log.warning("%s", fault)
    facts = [("Store", fault.target), ("Error", fault.reason)]
    if fault.command:
        facts.append(("Command", fault.command))
    retry = RETRY_SECONDS if request.method == "GET" else 0  # a change is never repeated by itself
    text = f"This page needs the store. {_ASKED_AGAIN}" if retry else _PERHAPS_DONE
    told = ErrorPage(503, "A store does not answer", text, tuple(facts), fault.advice, retry=retry)
    response = render_error(request, told)
    response["Retry-After"] = str(RETRY_SECONDS)
    return response


def is_unmigrated(fault: BaseException | None) -> bool:
    """Returns True if a table or a column is missing: `manage.py migrate` did not run, or not since the last update."""
    if isinstance(fault, OperationalError) and str(fault).startswith(_MISSING_IN_SQLITE):
        return True
    return isinstance(fault, ProgrammingError) and getattr(fault.__cause__, "sqlstate", "") in _UNDEFINED


def is_database_error(fault: BaseException | None) -> bool:
    """Returns True if the database is down or not migrated; other errors of it are bugs of ours."""
    return isinstance(fault, (OperationalError, InterfaceError)) or is_unmigrated(fault)


def database_down(request: HttpRequest, fault: BaseException) -> HttpResponse:
    """Returns 503 without the page frame, as the user is not known; only the log gets the driver's message."""
    log.warning("the database cannot be used: %s", fault)
    title, advice = _DATABASE_SILENT
    if is_unmigrated(fault):
        title, advice = _DATABASE_UNMIGRATED
    retry = RETRY_SECONDS if request.method == "GET" else 0
    text = f"Users and sessions are stored in it. {_ASKED_AGAIN if retry else _PERHAPS_DONE}"
    response = render_error(request, ErrorPage(503, title, text, advice=advice, retry=retry), bare=True)
    response["Retry-After"] = str(RETRY_SECONDS)
    return response


def refused(request: HttpRequest, fault: UnstallError) -> HttpResponse:
    if isinstance(fault, Forbidden):
        return render_error(request, ErrorPage(403, "Permission denied", str(fault)))
    if isinstance(fault, NotRecorded):
        advice = "Unstall changes nothing without an audit entry. Check whether the database's disk is full."
        return render_error(request, ErrorPage(503, "Nothing was done", str(fault), advice=advice))
    return render_error(request, ErrorPage(409, "This cannot be done here", str(fault)))


def not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    text = "This URL does not exist. Check that the URL is complete."
    return render_error(
        request, ErrorPage(404, "Page not found", text, link=reverse("overview"), link_text="All queues")
    )


def forbidden(request: HttpRequest, exception: Exception) -> HttpResponse:
    reason = str(exception) or "Your role does not allow this."
    told = ErrorPage(403, "Permission denied", reason, advice="An admin can change your role under Users.")
    return render_error(request, told)


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    advice = "If the host name in your browser is correct, ask an admin to add it to UNSTALL_ALLOWED_HOSTS."
    return render_error(request, ErrorPage(400, "Bad request", advice=advice), bare=True)


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    text = "The form is older than your session, or another site sent it. Nothing was changed."
    advice = (
        "Reload the page and try again. If that does not help, your browser blocks cookies, "
        "or UNSTALL_TRUSTED_ORIGINS does not list this address."
    )
    return render_error(request, ErrorPage(403, "The form was not accepted", text, (("Reason", reason),), advice))


def internal_error(request: HttpRequest) -> HttpResponse:
    """Returns 500 without using anything that may be broken: no database, no configuration, no page frame.

    A middleware that meets a dead database (the session's) ends here too: no other handler sees that error.
    """
    fault = sys.exc_info()[1]
    if fault and is_database_error(fault):
        return database_down(request, fault)
    text = "This is a bug in Unstall, not in your queues. The log of the web process has the details."
    told = ErrorPage(500, "Internal error", text, link="/", link_text="All queues")
    return render_error(request, told, bare=True)


def render_error(request: HttpRequest, fault: ErrorPage, *, bare: bool = False) -> HttpResponse:
    """Returns the error as a page; as a notice above the unchanged page for a fragment; as JSON for the API."""
    if error_responses.is_api_request(request):
        return error_responses.site_error(fault.status, f"{fault.title}. {fault.text}".strip(), fault.advice)
    if request.headers.get("HX-Request"):
        response = render(None, "base/errors/_fault.html", {"fault": fault}, status=fault.status)
        response["HX-Retarget"], response["HX-Reswap"] = _TARGET, "innerHTML"
        return response
    if request.accepts("text/html"):
        page = "base/errors/bare.html" if bare else "base/errors/fault.html"
        return render(None if bare else request, page, {"fault": fault}, status=fault.status)
    return HttpResponse(
        f"{fault.title}. {fault.text}\n".encode(), content_type="text/plain; charset=utf-8", status=fault.status
    )
