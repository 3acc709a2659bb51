"""/tuning/drill: shows past fire drills and the running one, and the form by which an admin starts one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard import actors, dialogs, drill_cells
from dashboard.access import Role, allows, needs
from dashboard.drill_form import DrillForm
from recovery.actions import drills as orders
from recovery.connections.registry import registry
from recovery.domain.drills.plan import Library
from recovery.errors import BadOrder, ConfigError, StoreError
from recovery.reads import drills
from recovery.reads.drills import Offer
from recovery.reads.shared import Shared

_shown = Shared(kept=4)
_NOBODY = "The installed libraries are unknown: no scheduler is the leader, or the state store does not answer."


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "tuning/drills.html", part(request))


@require_safe
def now(request: HttpRequest) -> HttpResponse:
    return render(request, "tuning/_drill.html", part(request))


@require_safe
def run(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "tuning/drill.html", _run(request, pk))


@require_safe
def run_now(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "tuning/_drill_run.html", _run(request, pk))


@require_http_methods(["GET", "HEAD", "POST"])
@needs(Role.ADMIN)
def order(request: HttpRequest) -> HttpResponse:
    offers = _shown.get("offers", _offers)
    form = DrillForm(request.POST if request.method == "POST" else None, libraries=_installed(offers))
    if request.method != "POST":
        return _ask(request, form)
    wrong = dialogs.lacks_reason(request)
    if not form.is_valid() or wrong:
        return _ask(request, form, wrong)
    try:
        ordered = orders.order(actors.person(request), form.plan, dialogs.reason(request))
    except BadOrder as refused:
        return _ask(request, form, {"order": str(refused)})
    _shown.forget()
    return dialogs.go(request, reverse("drill", args=[ordered.pk]))


@require_POST
@needs(Role.ADMIN)
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    if not orders.stop(actors.person(request), pk):
        messages.warning(request, "It has already ended or is being stopped.")
    _shown.forget()
    return redirect("drill", pk)


def part(request: HttpRequest) -> dict[str, Any]:
    """Returns the context of `tuning/_drill.html`, for any page that includes it."""
    offers = _shown.get("offers", _offers)
    lines = [drill_cells.line(one) for one in _shown.get("newest", drills.newest)]
    return {
        "drills": [line for line in lines if not line["run"].is_open],
        "under_way": next((line for line in lines if line["run"].is_open), None),
        "offers": offers,
        "nobody": "" if offers else _NOBODY,
        "may_order": allows(request.user, Role.ADMIN),
        "can_order": bool(_installed(offers)),
    }


def _run(request: HttpRequest, pk: int) -> dict[str, Any]:
    return {"one": drill_cells.detail(drills.run(pk)), "may_stop": allows(request.user, Role.ADMIN)}


def _offers() -> tuple[Offer, ...]:
    try:
        return drills.read(registry().state())
    except (StoreError, ConfigError):
        return ()


def _installed(offers: Iterable[Offer]) -> list[Library]:
    return [one.library for one in offers if not one.trouble]


def _ask(request: HttpRequest, form: DrillForm, wrong: dict[str, str] | None = None) -> HttpResponse:
    offers = _shown.get("offers", _offers)
    told = {
        "form": form,
        "here": dialogs.here(request, reverse("drill-order")),
        "back": dialogs.back(request, reverse("drills")),
        "offers": offers,
        "nobody": "" if offers else _NOBODY,
        "can_order": bool(_installed(offers)),
        "wrong": wrong or {},
    }
    return dialogs.ask(request, "tuning/_drill_order.html", "Start a fire drill", told)
