"""/scanners/safety-limits/release: an admin releases a safety limit, after a dialog says what it stops and why."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import actors, brake_cells, dialogs
from dashboard.access import Role, needs
from dashboard.brake_cells import Line
from dashboard.policy_table import Place
from dashboard.views import scanners
from dashboard.views.errors import Fault, answer
from dashboard.wishes import NotUnderstood
from recovery import shared_clock
from recovery.actions import brakes as acts
from recovery.errors import BadOrder, Missing
from recovery.reads import brakes

_GONE = "This safety limit is no longer active: it ended automatically or a user released it."


@require_http_methods(["GET", "HEAD", "POST"])
@needs(Role.ADMIN)
def release(request: HttpRequest) -> HttpResponse:
    try:
        place = Place.of(request.GET)
    except NotUnderstood as wrong:
        fault = Fault(400, "This cannot be done", str(wrong), link=reverse("scanners"), link_text="Scanners")
        return answer(request, fault)
    line = _line(place, request.GET.get("kind", ""), request.GET.get("key", ""))
    if request.method != "POST":
        return _ask(request, line)
    if lacks := dialogs.lacks_reason(request):
        return _ask(request, line, lacks)
    actor, base = actors.person(request), line.queue.base if line.queue else ""
    try:
        acts.release(actor, line.kind, line.deployment, base, line.key, dialogs.reason(request))
    except BadOrder as refused:
        return _ask(request, line, {"reason": str(refused)})
    scanners.forget()
    return dialogs.done(request, f"{line.title} released: {line.about}.", _back(request))


def _line(place: Place, kind: str, key: str) -> Line:
    """Reads the current state of the safety limit. Raises Missing."""
    now = shared_clock.now()
    found = brakes.of_queue(place.ref, now)
    line = brake_cells.board(found, now).line(kind, key)
    if line is None:
        raise Missing(_GONE)
    return line


def _ask(request: HttpRequest, line: Line, wrong: dict[str, str] | None = None) -> HttpResponse:
    told = {"brake": line, "here": dialogs.here(request, line.address), "back": _back(request), "wrong": wrong or {}}
    return dialogs.ask(request, "brakes/_release.html", f"Release: {line.title}", told, about=line.about)


def _back(request: HttpRequest) -> str:
    return dialogs.back(request, reverse("scanners"))
