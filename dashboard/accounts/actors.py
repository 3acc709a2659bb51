"""Describes a logged-in user as the actor that the engine checks and the audit log records."""

from __future__ import annotations

from django.http import HttpRequest

from dashboard.accounts.roles import rights_of
from recovery.domain.actions.types import Actor, Right


def actor_from_request(request: HttpRequest) -> Actor:
    user = request.user
    rights = rights_of(user)
    return Actor(
        kind="person",
        name=user.get_username(),
        role=str(getattr(user, "role", "")),
        address=request.META.get("REMOTE_ADDR") or "",
        may_act=Right.ACT in rights,
        may_bulk=Right.BULK in rights,
        may_many=Right.MANY in rights,
        may_pause=Right.PAUSE in rights,
    )
