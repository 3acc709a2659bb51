"""People, the one-time links that let them in, and the tokens of machines."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from dashboard.access import Role
from dashboard.scopes import Scope, parse


class User(AbstractUser):
    """A person. Their role is read anew with every request, so a change takes effect at once."""

    role = models.CharField(
        max_length=16, choices=[(role.value, role.value) for role in Role], default=Role.VIEWER.value
    )

    class Meta(AbstractUser.Meta):
        constraints: ClassVar = [
            models.CheckConstraint(condition=models.Q(role__in=[role.value for role in Role]), name="user_role_known"),
        ]

    @property
    def may(self) -> str:
        return Role(self.role).may


class Invitation(models.Model):
    """A one-time link. Only the token's hash is kept: who reads the database cannot use it.

    Without a user it is the link of the first start, and makes an admin.
    """

    token_hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, blank=True, related_name="invitations")
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"link for {self.user or 'the first admin'}"


class MachineToken(models.Model):
    """A token for a program. Only its hash is kept, and its beginning so that people can tell tokens apart.

    A name is never used twice: it is what the audit says of whoever acted.
    """

    name = models.CharField(max_length=60)
    token_hash = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(max_length=24)
    scopes = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, related_name="tokens")
    expires_at = models.DateTimeField()
    last_used_at = models.DateTimeField(null=True)
    revoked_at = models.DateTimeField(null=True)

    class Meta:
        constraints: ClassVar = [models.UniqueConstraint(Lower("name"), name="token_name_once")]

    def __str__(self) -> str:
        return f"token {self.name}"

    @property
    def allowed(self) -> frozenset[Scope]:
        return parse(self.scopes)

    @property
    def state(self) -> str:
        """valid, expired, revoked."""
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if self.expires_at > timezone.now() else "expired"
