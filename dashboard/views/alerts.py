"""/alerts: shows the firing and resolved alerts, which channels were notified, and whether the channels work."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard import actors, alert_cells
from dashboard.access import Role, allows, needs
from recovery import config, shared_clock
from recovery.actions import alerts as acts
from recovery.connections.registry import registry
from recovery.errors import ConfigError, NotDelivered, StoreError
from recovery.reads import alerts, outlets
from recovery.reads.outlets import Outlet
from recovery.reads.shared import Shared

_shown = Shared(kept=4)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "alerts/page.html", _context(request))


@require_safe
def now(request: HttpRequest) -> HttpResponse:
    return render(request, "alerts/_now.html", _context(request))


@require_POST
@needs(Role.ADMIN)
def test(request: HttpRequest, channel: str) -> HttpResponse:
    """Sends a test alert to a channel; takes as long as one delivery may."""
    current = config.current()
    if current.alerting.channel(channel) is None:
        raise Http404("Unknown channel.")
    try:
        remark = acts.try_out(actors.person(request), channel, current)
    except NotDelivered as error:
        messages.error(request, f"{channel} could not be notified: {error}")
    else:
        messages.success(request, f"Test delivered to {channel}. {remark}".rstrip())
    _shown.forget()
    return redirect("alerts")


def known_outlets() -> dict[str, Outlet] | None:
    """Returns the delivery state of each channel, or None if the state store does not answer."""
    try:
        return outlets.read(registry().state())
    except (StoreError, ConfigError):
        return None


def _context(request: HttpRequest) -> dict[str, Any]:
    at, alerting = shared_clock.now(), config.current().alerting
    standing = _shown.get("firing", lambda: alerts.firing(alerting.terms))
    over = _shown.get("lately", lambda: alerts.lately(alerting.terms))
    fares = _shown.get("outlets", known_outlets)
    return {
        "firing": alert_cells.firing(standing, alerting, at),
        "over": alert_cells.over(over),
        "cards": alert_cells.cards(alerting, fares),
        "may_test": allows(request.user, Role.ADMIN),
    }
