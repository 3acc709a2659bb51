"""Defines the three user roles, the rights of each, and the decorator by which a view requires one."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from typing import Concatenate, ParamSpec

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponseBase

from recovery import config
from recovery.domain.actions.types import Right

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, P], HttpResponseBase]


class UserRole(StrEnum):
    """Role of a user, from least to most rights; each includes the rights of those before it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        return list(UserRole).index(self)

    @property
    def may(self) -> str:
        granted = [words for right, words in _GRANTED.items() if right in self.rights]
        return ", ".join([*_MAY[self], *(granted if self is UserRole.OPERATOR else ())])

    @property
    def rights(self) -> frozenset[Right]:
        """Rights to act on jobs and queues: pages offer by them, and the engine checks them."""
        if self is UserRole.ADMIN:
            return frozenset(Right)
        return frozenset({Right.ACT}) | config.current().operators_may if self is UserRole.OPERATOR else frozenset()

    def allows(self, needed: UserRole) -> bool:
        return self.rank >= needed.rank


_MAY = {
    UserRole.VIEWER: ("views queues and jobs, with payload values hidden",),
    UserRole.OPERATOR: ("reveals payloads and acts on single jobs",),
    UserRole.ADMIN: ("acts in bulk, sets policies, manages users",),
}
_GRANTED = {
    Right.MANY: "acts on several jobs at once unless that deletes them",
    Right.PAUSE: "pauses and resumes queues",
}


def role_of(user: object) -> UserRole | None:
    """Returns the role of a logged-in user; None for anybody else."""
    if not getattr(user, "is_active", False):
        return None
    written = getattr(user, "role", "")
    return next((role for role in UserRole if role.value == written), None)


def rights_of(user: object) -> frozenset[Right]:
    role = role_of(user)
    return role.rights if role else frozenset()


def allows(user: object, needed: UserRole) -> bool:
    role = role_of(user)
    return role is not None and role.allows(needed)


def may_see_payloads(user: object) -> bool:
    """Returns True if the user may reveal payloads, which may hold confidential data."""
    return allows(user, UserRole.OPERATOR)


def needs(role: UserRole) -> Callable[[View[P]], View[P]]:
    """Makes a view refuse users below `role`. Without it a view is open to every logged-in user."""

    def decorate(view: View[P]) -> View[P]:
        @wraps(view)
        def guarded(request: HttpRequest, /, *args: P.args, **kwargs: P.kwargs) -> HttpResponseBase:
            if not allows(request.user, role):
                raise PermissionDenied(f"This requires the role {role}.")
            return view(request, *args, **kwargs)

        guarded.needs = role  # type: ignore[attr-defined]  # read by the test that walks every URL
        return guarded

    return decorate
