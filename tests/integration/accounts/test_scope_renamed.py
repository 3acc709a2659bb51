"""A machine token that was made with the scope `once` has the scope `idempotency` after an update."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from dashboard.accounts.token_scopes import TokenScope
from dashboard.models import MachineToken

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("once", {TokenScope.IDEMPOTENCY}),
        ("read once", {TokenScope.READ, TokenScope.IDEMPOTENCY}),
        ("read", {TokenScope.READ}),
    ],
)
def test_a_token_may_do_what_it_might_before(was: str, now: set[TokenScope]) -> None:
    MachineToken.objects.create(name="x", token_hash="h", prefix="p", scopes=was, expires_at="2126-01-01T00:00:00Z")
    import_module("dashboard.migrations.0004_idempotency_scope").rename(apps, None)
    assert MachineToken.objects.get().allowed == now
