"""Models of users, their sessions, one-time links, and machine tokens."""

from __future__ import annotations

from typing import ClassVar

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models.functions import Lower
from django.utils import timezone

from dashboard.accounts.roles import UserRole
from dashboard.accounts.sessions import browser_name
from dashboard.accounts.token_scopes import TokenScope, parse


class User(AbstractUser):
    """User account. The role is read anew with every request, so a change takes effect at once."""

    role = models.CharField(
        max_length=16, choices=[(role.value, role.value) for role in UserRole], default=UserRole.VIEWER.value
    )

    # The key of the authenticator is made of this and of the secret key: the database alone makes no code.
    two_factor_seed = models.CharField(max_length=64, blank=True, default="")  # "": log-in by password alone
    two_factor_since = models.DateTimeField(null=True, blank=True)
    two_factor_step = models.BigIntegerField(default=0)  # of the last code that was taken: none is taken twice

    class Meta(AbstractUser.Meta):
        constraints: ClassVar = [
            models.CheckConstraint(
                condition=models.Q(role__in=[role.value for role in UserRole]), name="user_role_known"
            ),
        ]

    @property
    def may(self) -> str:
        return UserRole(self.role).may


class RecoveryCode(models.Model):
    """Code for a user whose authenticator is lost. It works once, and only its hash is kept."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="recovery_codes")
    code_hash = models.CharField(max_length=64)
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"recovery code of {self.user_id}"


class LoginSession(models.Model):
    """A session of a browser. Only the hash of its key is kept: who reads the database cannot use it.

    Without a user it belongs to a log-in whose password was right and whose code is awaited.
    """

    key_hash = models.CharField(max_length=64, unique=True)
    data = models.TextField()
    user = models.ForeignKey(User, on_delete=models.CASCADE, null=True, related_name="sessions")
    created_at = models.DateTimeField(default=timezone.now)
    last_used_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(db_index=True)
    address = models.CharField(max_length=64, default="")
    browser = models.CharField(max_length=200, default="")

    def __str__(self) -> str:
        return f"session {self.pk}"

    @property
    def browser_name(self) -> str:
        return browser_name(self.browser)


class LoginFailures(models.Model):
    """Wrong passwords and codes of one bucket (a name, an address, both, a browser) within a window of time."""

    bucket = models.CharField(max_length=80, unique=True)
    failures = models.PositiveIntegerField(default=0)
    since = models.DateTimeField(db_index=True)
    paused_until = models.DateTimeField(null=True)

    def __str__(self) -> str:
        return f"{self.failures} failures of {self.bucket}"


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

    A name is never used twice: the audit identifies by it who acted.
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
    def allowed(self) -> frozenset[TokenScope]:
        return parse(self.scopes)

    @property
    def state(self) -> str:
        """State of the token: valid, expired or revoked."""
        if self.revoked_at is not None:
            return "revoked"
        return "valid" if self.expires_at > timezone.now() else "expired"
