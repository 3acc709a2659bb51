"""People for tests of rights: one of each role, and a stranger."""

from __future__ import annotations

from django.test import Client
from django.test.client import ClientHandler

from dashboard.accounts.roles import UserRole
from dashboard.models import User

PASSWORD = "a quiet night, please"
# One for all browsers: to make another one means to look at every static file again.
_PRODUCT = ClientHandler(enforce_csrf_checks=False)


def person(role: UserRole, name: str = "") -> User:
    """Somebody with this role, who cannot log in by password (hashing one takes long)."""
    return User.objects.get_or_create(username=name or f"some-{role}", defaults={"role": role, "password": "!"})[0]


def browser(user: User | None = None) -> Client:
    """A browser in which this person is logged in; without a person, a stranger's."""
    client = Client(raise_request_exception=False)
    client.handler = _PRODUCT
    if user is not None:
        client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return client


def text(client: Client, address: str, status: int = 200) -> str:
    """What a page says."""
    answer = client.get(address)
    assert answer.status_code == status, answer.content
    return answer.content.decode()
