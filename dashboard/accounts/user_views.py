"""Lists users and changes their roles, for admins."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import actors, invitations, two_factor, user_changes
from dashboard.accounts.forms import ActiveForm, PersonForm, RoleForm
from dashboard.accounts.reauthentication import needs_recent_password
from dashboard.accounts.roles import UserRole, needs
from dashboard.models import User
from recovery.actions.audit import audit_log

LIMIT = 500  # a list that a person still can read
_LAST = "This is the last active admin. Give another user the admin role first."


@require_safe
@needs(UserRole.ADMIN)
@needs_recent_password()
def users(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("users")
def add(request: HttpRequest) -> HttpResponse:
    """Invites a user and shows their link once: only its hash is stored."""
    form = PersonForm(request.POST)
    if not form.is_valid():
        return _page(request, form=form, status=422)
    person = User(**form.cleaned_data)
    person.set_unusable_password()
    with transaction.atomic():
        person.save()
        _note(request, "invite user", person, role=person.role)
    return _with_link(request, person)


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("users")
def link(request: HttpRequest, pk: int) -> HttpResponse:
    return _with_link(request, get_object_or_404(User, pk=pk, is_active=True))


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("users")
def role(request: HttpRequest, pk: int) -> HttpResponse:
    form, person = RoleForm(request.POST), get_object_or_404(User, pk=pk)
    if not form.is_valid():
        return _page(request, status=422)
    chosen = UserRole(form.cleaned_data["role"])
    try:
        with transaction.atomic():
            user_changes.set_role(person, chosen)
            _note(request, "change role", person, role=chosen, before=person.role)
    except user_changes.LastAdmin:
        return _page(request, refusal=_LAST, status=409)
    messages.success(request, f"{person.username} now has the role {chosen}.")
    return redirect("users")


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("users")
def active(request: HttpRequest, pk: int) -> HttpResponse:
    form, person = ActiveForm(request.POST), get_object_or_404(User, pk=pk)
    wanted = form.is_valid() and form.cleaned_data["active"]
    try:
        with transaction.atomic():
            user_changes.set_active(person, active=wanted)
            _note(request, "activate user" if wanted else "deactivate user", person)
    except user_changes.LastAdmin:
        return _page(request, refusal=_LAST, status=409)
    messages.success(request, f"{person.username} was activated." if wanted else f"{person.username} was deactivated.")
    return redirect("users")


@require_POST
@needs(UserRole.ADMIN)
@needs_recent_password("users")
def two_factor_off(request: HttpRequest, pk: int) -> HttpResponse:
    """Turns off the second factor of a user who has lost the authenticator and the recovery codes."""
    person = get_object_or_404(User, pk=pk)
    with transaction.atomic():
        if two_factor.turn_off(person):
            _note(request, "two-factor off", person)
    messages.success(request, f"Two-factor authentication is off for {person.username}.")
    return redirect("users")


def _with_link(request: HttpRequest, person: User) -> HttpResponse:
    with transaction.atomic():
        path = invitations.link_for(person)
        _note(request, "create invite link", person)
    return _page(request, person=person, link=request.build_absolute_uri(path), status=201)


def _note(request: HttpRequest, act: str, person: User, **facts: object) -> None:
    """Records a change in the audit, in the transaction of the change."""
    audit_log.note(actors.actor_from_request(request), act, body={"person": person.username, **facts})


def _page(request: HttpRequest, *, status: int = 200, **shown: object) -> HttpResponse:
    people_known = User.objects.order_by("-is_active", "username")[:LIMIT]
    context = {"people": people_known, "roles": list(UserRole), "form": PersonForm(), **shown}
    return render(request, "accounts/users/users.html", context, status=status)
