"""/tuning/drill: shows past fire drills and the running one, and the form by which an admin starts one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, allows, needs
from dashboard.base import dialogs
from dashboard.tuning.drills import presenters as drills_presenters
from dashboard.tuning.drills.forms import DrillForm
from recovery.domain.drills.plan import DrillLibrary
from recovery.drills import drill_orders as orders
from recovery.drills import queries as drills_queries
from recovery.drills.queries import DrillOffer
from recovery.errors import BadOrder, ConfigError, StoreError
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import SharedReads

_shown = SharedReads(kept=4)
_NOBODY = "The installed libraries are unknown: no scheduler is the leader, or the state store does not answer."


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "tuning/drills.html", drills_context(request))


@require_safe
def now(request: HttpRequest) -> HttpResponse:
    return render(request, "tuning/_drill.html", drills_context(request))


@require_safe
def run(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "tuning/drill.html", _run(request, pk))


@require_safe
def run_now(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "tuning/_drill_run.html", _run(request, pk))


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.ADMIN)
def order(request: HttpRequest) -> HttpResponse:
    offers = _shown.get("offers", _offers)
    form = DrillForm(request.POST if request.method == "POST" else None, libraries=_installed(offers))
    if request.method != "POST":
        return _ask(request, form)
    wrong = dialogs.lacks_reason(request)
    if not form.is_valid() or wrong:
        return _ask(request, form, wrong)
    try:
        ordered = orders.order(actors.actor_from_request(request), form.plan, dialogs.reason(request))
    except BadOrder as refused:
        return _ask(request, form, {"order": str(refused)})
    _shown.forget()
    return dialogs.go(request, reverse("drill", args=[ordered.pk]))


@require_POST
@needs(UserRole.ADMIN)
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    if not orders.stop(actors.actor_from_request(request), pk):
        messages.warning(request, "It has already ended or is being stopped.")
    _shown.forget()
    return redirect("drill", pk)


def drills_context(request: HttpRequest) -> dict[str, Any]:
    """Returns the context of `tuning/_drill.html`, for any page that includes it."""
    offers = _shown.get("offers", _offers)
    lines = [drills_presenters.line(one) for one in _shown.get("newest", drills_queries.newest)]
    return {
        "drills": [line for line in lines if not line["run"].is_open],
        "under_way": next((line for line in lines if line["run"].is_open), None),
        "offers": offers,
        "nobody": "" if offers else _NOBODY,
        "may_order": allows(request.user, UserRole.ADMIN),
        "can_order": bool(_installed(offers)),
    }


def _run(request: HttpRequest, pk: int) -> dict[str, Any]:
    return {"one": drills_presenters.detail(drills_queries.run(pk)), "may_stop": allows(request.user, UserRole.ADMIN)}


def _offers() -> tuple[DrillOffer, ...]:
    try:
        return drills_queries.read(registry().state())
    except (StoreError, ConfigError):
        return ()


def _installed(offers: Iterable[DrillOffer]) -> list[DrillLibrary]:
    return [one.library for one in offers if not one.trouble]


def _ask(request: HttpRequest, form: DrillForm, wrong: dict[str, str] | None = None) -> HttpResponse:
    offers = _shown.get("offers", _offers)
    told = {
        "form": form,
        "here": dialogs.post_url(request, reverse("drill-order")),
        "back": dialogs.return_url(request, reverse("drills")),
        "offers": offers,
        "nobody": "" if offers else _NOBODY,
        "can_order": bool(_installed(offers)),
        "wrong": wrong or {},
    }
    return dialogs.ask(request, "tuning/_drill_order.html", "Start a fire drill", told)
