"""Changes roles and access of users. An active admin is always left, also under concurrent changes."""

from __future__ import annotations

from django.db import transaction

from dashboard.accounts.roles import UserRole
from dashboard.accounts.sessions import digest
from dashboard.models import LoginSession, User


class LastAdmin(Exception):
    """Raised for the last active admin: without one, only the command line could make another."""


def set_role(user: User, role: UserRole) -> None:
    with transaction.atomic():
        if role is not UserRole.ADMIN:
            _keep_an_admin(user)
        User.objects.filter(pk=user.pk).update(role=role)


def set_active(user: User, *, active: bool) -> None:
    with transaction.atomic():
        if not active:
            _keep_an_admin(user)
            end_sessions(user)
        User.objects.filter(pk=user.pk).update(is_active=active)


def end_sessions(user: User, *, but: str | None = None) -> int:
    """Ends all sessions of this user, and returns how many. `but`: the key of the one that stays."""
    ended, _ = LoginSession.objects.filter(user=user).exclude(key_hash=digest(but or "")).delete()
    return ended


def _keep_an_admin(user: User) -> None:
    """Raises LastAdmin for the last one. It locks all admins' rows, or two of them could demote each other at once."""
    admins = set(
        User.objects.select_for_update().filter(role=UserRole.ADMIN, is_active=True).values_list("pk", flat=True)
    )
    if admins == {user.pk}:
        raise LastAdmin
