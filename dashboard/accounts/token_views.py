"""API tokens, for admins: creates them, shows each once, and revokes them."""

from __future__ import annotations

from django.contrib import messages
from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import actors
from dashboard.accounts import tokens as kept
from dashboard.accounts.forms import TAKEN, TokenForm
from dashboard.accounts.reauthentication import needs_recent_password
from dashboard.accounts.roles import UserRole, needs
from dashboard.accounts.token_scopes import TokenScope
from dashboard.models import MachineToken, User
from recovery.actions.audit import audit_log

LIMIT = 500  # a list that a person still can read


@require_safe
@needs(UserRole.ADMIN)
@needs_recent_password()
def tokens(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("tokens")
def make(request: HttpRequest) -> HttpResponse:
    """Creates a token and shows it once: only its hash is stored."""
    form = TokenForm(request.POST)
    if not form.is_valid():
        return _page(request, form=form, status=422)
    try:
        token, written = _make(request, form)
    except IntegrityError:  # another request took the name at the same time
        form.add_error("name", TAKEN)
        return _page(request, form=form, status=422)
    return _page(request, made=token, written=written, status=201)


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("tokens")
def revoke(request: HttpRequest, pk: int) -> HttpResponse:
    token = get_object_or_404(MachineToken, pk=pk)
    with transaction.atomic():
        if kept.revoke(token):
            _note(request, "revoke token", token)
    messages.success(request, f"Token {token.name} was revoked.")
    return redirect("tokens")


def _make(request: HttpRequest, form: TokenForm) -> tuple[MachineToken, str]:
    """Creates the token and its audit entry in one transaction."""
    allowed = frozenset(map(TokenScope, form.cleaned_data["scopes"]))
    maker = request.user if isinstance(request.user, User) else None
    with transaction.atomic():
        token, written = kept.make(form.cleaned_data["name"], allowed, form.cleaned_data["days"], maker)
        _note(request, "create token", token)
    return token, written


def _note(request: HttpRequest, act: str, token: MachineToken) -> None:
    body = {
        "token": token.name,
        "prefix": token.prefix,
        "scopes": token.scopes.split(),
        "expires_at": int(token.expires_at.timestamp() * 1000),
    }
    audit_log.note(actors.actor_from_request(request), act, body=body)


def _page(request: HttpRequest, *, status: int = 200, **shown: object) -> HttpResponse:
    """Renders the list, with usable tokens first."""
    known = MachineToken.objects.select_related("created_by").order_by(F("revoked_at").desc(nulls_first=True), "name")
    context = {"tokens": known[:LIMIT], "scopes": list(TokenScope), "form": TokenForm(), **shown}
    return render(request, "accounts/tokens/tokens.html", context, status=status)
