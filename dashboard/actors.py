"""Who acts, as the engine and its audit know a person who is logged in."""

from __future__ import annotations

from django.http import HttpRequest

from dashboard.access import Role, allows
from recovery.domain.acting import Actor


def person(request: HttpRequest) -> Actor:
    """An operator acts on single jobs, an admin in bulk as well."""
    user = request.user
    return Actor(
        kind="person",
        name=user.get_username(),
        role=str(getattr(user, "role", "")),
        address=request.META.get("REMOTE_ADDR") or "",
        may_act=allows(user, Role.OPERATOR),
        may_bulk=allows(user, Role.ADMIN),
    )
