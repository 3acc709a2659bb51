"""Users and their roles, for admins."""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_POST, require_safe

from dashboard import invitations, people
from dashboard.access import Role, needs
from dashboard.forms import ActiveForm, PersonForm, RoleForm
from dashboard.models import User

LIMIT = 500  # a list that a person still can read
_LAST = "This is the last active admin. Make somebody else an admin first."


@require_safe
@needs(Role.ADMIN)
def users(request: HttpRequest) -> HttpResponse:
    return _page(request)


@require_POST
@needs(Role.ADMIN)
def add(request: HttpRequest) -> HttpResponse:
    """Makes the person and shows their link, once: only its hash is kept."""
    form = PersonForm(request.POST)
    if not form.is_valid():
        return _page(request, form=form, status=422)
    person = User(**form.cleaned_data)
    person.set_unusable_password()
    person.save()
    return _with_link(request, person)


@require_POST
@needs(Role.ADMIN)
def link(request: HttpRequest, pk: int) -> HttpResponse:
    return _with_link(request, get_object_or_404(User, pk=pk, is_active=True))


@require_POST
@needs(Role.ADMIN)
def role(request: HttpRequest, pk: int) -> HttpResponse:
    form, person = RoleForm(request.POST), get_object_or_404(User, pk=pk)
    if not form.is_valid():
        return _page(request, status=422)
    chosen = Role(form.cleaned_data["role"])
    try:
        people.set_role(person, chosen)
    except people.LastAdmin:
        return _page(request, refusal=_LAST, status=409)
    messages.success(request, f"{person.username} is {chosen} from now on.")
    return redirect("users")


@require_POST
@needs(Role.ADMIN)
def active(request: HttpRequest, pk: int) -> HttpResponse:
    form, person = ActiveForm(request.POST), get_object_or_404(User, pk=pk)
    wanted = form.is_valid() and form.cleaned_data["active"]
    try:
        people.set_active(person, active=wanted)
    except people.LastAdmin:
        return _page(request, refusal=_LAST, status=409)
    messages.success(
        request, f"{person.username} may come in again." if wanted else f"{person.username} is locked out."
    )
    return redirect("users")


def _with_link(request: HttpRequest, person: User) -> HttpResponse:
    path = invitations.link_for(person)
    return _page(request, person=person, link=request.build_absolute_uri(path), status=201)


def _page(request: HttpRequest, *, status: int = 200, **shown: object) -> HttpResponse:
    people_known = User.objects.order_by("-is_active", "username")[:LIMIT]
    context = {"people": people_known, "roles": list(Role), "form": PersonForm(), **shown}
    return render(request, "users/users.html", context, status=status)
