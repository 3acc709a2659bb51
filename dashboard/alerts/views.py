"""/alerts: shows the firing and resolved alerts, which channels were notified, and whether the channels work."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, allows, needs
from dashboard.alerts import presenters as alerts_presenters
from recovery import config, shared_clock
from recovery.alerts import channel_health
from recovery.alerts import channel_test as acts
from recovery.alerts import queries as alerts_queries
from recovery.alerts.channel_health import ChannelHealth
from recovery.errors import ConfigError, NotDelivered, StoreError
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import SharedReads

_shown = SharedReads(kept=4)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "alerts/page.html", _context(request))


@require_safe
def now(request: HttpRequest) -> HttpResponse:
    return render(request, "alerts/_now.html", _context(request))


@require_POST
@needs(UserRole.ADMIN)
def test(request: HttpRequest, channel: str) -> HttpResponse:
    """Sends a test alert to a channel; takes as long as one delivery may."""
    current = config.current()
    if current.alerting.channel(channel) is None:
        raise Http404("Unknown channel.")
    try:
        remark = acts.send_test(actors.actor_from_request(request), channel, current)
    except NotDelivered as error:
        messages.error(request, f"{channel} could not be notified: {error}")
    else:
        messages.success(request, f"Test delivered to {channel}. {remark}".rstrip())
    _shown.forget()
    return redirect("alerts")


def known_outlets() -> dict[str, ChannelHealth] | None:
    """Returns the delivery state of each channel, or None if the state store does not answer."""
    try:
        return channel_health.read(registry().state())
    except (StoreError, ConfigError):
        return None


def _context(request: HttpRequest) -> dict[str, Any]:
    at, alerting = shared_clock.now(), config.current().alerting
    standing = _shown.get("firing", lambda: alerts_queries.firing(alerting.terms))
    over = _shown.get("lately", lambda: alerts_queries.resolved_alerts(alerting.terms))
    fares = _shown.get("outlets", known_outlets)
    return {
        "firing": alerts_presenters.firing(standing, alerting, at),
        "over": alerts_presenters.resolved_lines(over),
        "cards": alerts_presenters.cards(alerting, fares),
        "may_test": allows(request.user, UserRole.ADMIN),
    }
