"""Turns the second factor of the user's own account on, with a QR code and recovery codes shown once; and off."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from dashboard.accounts import actors, two_factor
from dashboard.accounts.forms import CodeForm
from dashboard.accounts.reauthentication import needs_recent_password
from dashboard.models import User
from recovery import config
from recovery.actions.audit import audit_log

_SEED = "two_factor_seed"  # in the session: seed of the QR code, until a first code confirms it


@sensitive_post_parameters("code")
@require_http_methods(["GET", "HEAD", "POST"])
@needs_recent_password()
def page(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    if two_factor.is_on(user):
        return render(request, "accounts/two-factor/page.html", {"left": two_factor.codes_left(user)})
    seed = request.session.setdefault(_SEED, two_factor.new_seed())
    form = CodeForm(request.POST or None)
    form.fields["code"].help_text = f"Enter the {two_factor.DIGITS} digits that your authenticator app shows."
    if form.is_valid():
        step = two_factor.step_of(seed, "".join(form.cleaned_data["code"].split()))
        if step is not None:
            return _turned_on(request, user, seed, step)
        form.add_error("code", "This code is not valid now. Check the clock of your phone.")
    address = two_factor.address_of(user, seed, config.current().environment)
    context = {
        "form": form,
        "qr": two_factor.qr_code(address),
        "secret": two_factor.secret_of(seed),
    }
    return render(request, "accounts/two-factor/enrol.html", context, status=422 if form.is_bound else 200)


@require_POST
@needs_recent_password("two-factor")
def new_codes(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    if not two_factor.is_on(user):
        return redirect("two-factor")
    with transaction.atomic():
        codes = two_factor.new_recovery_codes(user)
        audit_log.note(actors.actor_from_request(request), "new recovery codes")
    return render(request, "accounts/two-factor/codes.html", {"codes": codes}, status=201)


@require_POST
@needs_recent_password("two-factor")
def off(request: HttpRequest) -> HttpResponse:
    with transaction.atomic():
        if two_factor.turn_off(cast(User, request.user)):
            audit_log.note(actors.actor_from_request(request), "two-factor off")
    messages.success(request, "Two-factor authentication is off.")
    return redirect("two-factor")


def _turned_on(request: HttpRequest, user: User, seed: str, step: int) -> HttpResponse:
    with transaction.atomic():
        codes = two_factor.turn_on(user, seed, step)
        audit_log.note(actors.actor_from_request(request), "two-factor on")
    del request.session[_SEED]
    return render(request, "accounts/two-factor/codes.html", {"codes": codes, "is_new": True}, status=201)
