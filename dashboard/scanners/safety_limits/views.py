"""/scanners/safety-limits/release: an admin releases a safety limit, after a dialog says what it stops and why."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, needs
from dashboard.actions.action_request import InvalidRequest
from dashboard.base import dialogs
from dashboard.base.error_pages import ErrorPage, render_error
from dashboard.scanners import views as scanners_views
from dashboard.scanners.policies.policy_table import PolicyTarget
from dashboard.scanners.safety_limits import presenters as safety_limits_presenters
from dashboard.scanners.safety_limits.presenters import SafetyLimitLine
from recovery import shared_clock
from recovery.actions.safety_limits import auto_retry_limits as acts
from recovery.errors import BadOrder, Missing
from recovery.reads.safety_limits import queries as safety_limits_queries

_GONE = "This safety limit is no longer active: it ended automatically or a user released it."


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.ADMIN)
def release(request: HttpRequest) -> HttpResponse:
    try:
        place = PolicyTarget.of(request.GET)
    except InvalidRequest as wrong:
        fault = ErrorPage(400, "This cannot be done", str(wrong), link=reverse("scanners"), link_text="Scanners")
        return render_error(request, fault)
    line = _line(place, request.GET.get("kind", ""), request.GET.get("key", ""))
    if request.method != "POST":
        return _ask(request, line)
    if lacks := dialogs.lacks_reason(request):
        return _ask(request, line, lacks)
    actor, base = actors.actor_from_request(request), line.queue.base if line.queue else ""
    try:
        acts.release(actor, line.kind, line.deployment, base, line.key, dialogs.reason(request))
    except BadOrder as refused:
        return _ask(request, line, {"reason": str(refused)})
    scanners_views.forget()
    return dialogs.done(request, f"{line.title} released: {line.about}.", _back(request))


def _line(place: PolicyTarget, kind: str, key: str) -> SafetyLimitLine:
    """Reads the current state of the safety limit. Raises Missing."""
    now = shared_clock.now()
    found = safety_limits_queries.limits_of_queue(place.ref, now)
    line = safety_limits_presenters.board(found, now).line(kind, key)
    if line is None:
        raise Missing(_GONE)
    return line


def _ask(request: HttpRequest, line: SafetyLimitLine, wrong: dict[str, str] | None = None) -> HttpResponse:
    told = {
        "limit": line,
        "here": dialogs.post_url(request, line.address),
        "back": _back(request),
        "wrong": wrong or {},
    }
    return dialogs.ask(
        request, "scanners/safety_limits/_release.html", f"Release: {line.title}", told, about=line.about
    )


def _back(request: HttpRequest) -> str:
    return dialogs.return_url(request, reverse("scanners"))
