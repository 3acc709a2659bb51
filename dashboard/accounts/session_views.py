"""Lists sessions and ends them: users their own, admins all."""

from __future__ import annotations

from typing import cast

from django.contrib import messages
from django.contrib.auth import logout as log_out
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import actors, user_changes
from dashboard.accounts.roles import UserRole, allows, needs
from dashboard.accounts.sessions import digest, valid_sessions
from dashboard.models import LoginSession, User
from recovery.actions.audit import audit_log

LIMIT = 500  # a list that a person still can read


@require_safe
def sessions(request: HttpRequest) -> HttpResponse:
    return _page(request, valid_sessions().filter(user=request.user), is_of_all=False)


@require_safe
@needs(UserRole.ADMIN)
def all_sessions(request: HttpRequest) -> HttpResponse:
    return _page(request, valid_sessions().exclude(user=None), is_of_all=True)


@require_POST
def end(request: HttpRequest, pk: int) -> HttpResponse:
    """Ends one session: own, or any for an admin. Its pages stop at the next request, its streams in seconds."""
    mine = valid_sessions().exclude(user=None)
    if not allows(request.user, UserRole.ADMIN):
        mine = mine.filter(user=request.user)
    ended = get_object_or_404(mine.select_related("user"), pk=pk)
    if ended.key_hash == digest(request.session.session_key or ""):
        _note(request, ended.user, 1)
        log_out(request)
        return redirect("login")
    with transaction.atomic():
        ended.delete()
        _note(request, ended.user, 1)
    messages.success(request, f"A session of {ended.user.username} was ended.")
    return redirect(_back(request))


@require_POST
def end_others(request: HttpRequest) -> HttpResponse:
    """Ends all other sessions of the user."""
    user = cast(User, request.user)
    with transaction.atomic():
        if count := user_changes.end_sessions(user, but=request.session.session_key):
            _note(request, user, count)
    messages.success(request, f"{count} other session{'s' * (count != 1)} ended.")
    return redirect("sessions")


def _page(request: HttpRequest, found: QuerySet[LoginSession], *, is_of_all: bool) -> HttpResponse:
    listed = list(found.select_related("user").order_by("-last_used_at")[: LIMIT + 1])
    context = {
        "sessions": listed[:LIMIT],
        "is_cut": len(listed) > LIMIT,
        "limit": LIMIT,
        "is_of_all": is_of_all,
        "own": digest(request.session.session_key or ""),
        "may_see_all": allows(request.user, UserRole.ADMIN),
    }
    return render(request, "accounts/sessions/page.html", context)


def _note(request: HttpRequest, person: User, count: int) -> None:
    audit_log.note(
        actors.actor_from_request(request), "end session", body={"person": person.username, "sessions": count}
    )


def _back(request: HttpRequest) -> str:
    to = request.POST.get("next", "")
    is_ours = to.startswith("/") and url_has_allowed_host_and_scheme(to, allowed_hosts=None)
    return to if is_ours else "sessions"
