"""People and the one-time links that let them in."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.utils import timezone

from dashboard.access import Role


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
