"""Makes and accepts one-time links for the first admin, a new user, or one who forgot the password."""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta

from django.contrib.auth.hashers import make_password
from django.db import transaction
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone

from dashboard.accounts import user_changes
from dashboard.accounts.roles import UserRole
from dashboard.models import Invitation, User

LIFETIME = timedelta(hours=24)  # long enough for a colleague in another time zone


class LinkSpent(Exception):
    """Raised for a link that is used, expired, replaced by a newer one, or unknown; it does not disclose which."""


def first_link() -> str | None:
    """Returns the path of a new link for the first admin, or None if there is one. Earlier such links stop working."""
    if _admins().exists():
        return None
    Invitation.objects.filter(user=None).delete()
    return _give(None)


def link_for(user: User) -> str:
    """Returns the path of a new link for this user. Earlier ones stop working; the password stays until it is used."""
    Invitation.objects.filter(user=user).delete()
    return _give(user)


def find(token: str) -> Invitation:
    """Returns the link of this token if it can still be used; raises LinkSpent."""
    found = _usable(token).select_related("user").first()
    if found is None or (found.user is None and _admins().exists()):
        raise LinkSpent
    return found


def accept(token: str, *, username: str, password: str) -> User:
    """Marks the link as used and saves the user with the password, both or neither.

    The row count of one conditional UPDATE says who won when two use a link at the same moment.
    """
    hashed = make_password(password)  # takes a third of a second: before the transaction, not in it
    with transaction.atomic():
        link = find(token)
        # One table and no join: PostgreSQL looks again at exactly this condition after it waited for the other.
        if not Invitation.objects.filter(pk=link.pk, used_at=None).update(used_at=timezone.now()):
            raise LinkSpent
        user = link.user or User(username=username, role=UserRole.ADMIN)
        user.password = hashed
        user.save()
        user_changes.end_sessions(user)  # with the old password
        return user


def _give(user: User | None) -> str:
    token = secrets.token_urlsafe(32)
    Invitation.objects.create(token_hash=_hash(token), user=user, expires_at=timezone.now() + LIFETIME)
    return reverse("welcome", args=[token])


def _usable(token: str) -> QuerySet[Invitation]:
    return Invitation.objects.filter(
        Q(user=None) | Q(user__is_active=True),
        token_hash=_hash(token),
        used_at=None,
        expires_at__gt=timezone.now(),
    )


def _admins() -> QuerySet[User]:
    return User.objects.filter(role=UserRole.ADMIN, is_active=True)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
