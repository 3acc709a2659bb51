"""What could not be undone is not done by a program that does not say so, alone or in bulk."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.accounts.token_scopes import TokenScope
from tests.support.machines import Machine
from tests.web.api.test_api_actions import BASE, QUEUE, failed
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(("address", "scope"), [("actions", TokenScope.ACT), ("bulk", TokenScope.BULK)])
def test_without_room_for_the_undo_it_is_refused_unless_it_is_forced(
    desk: Desk, address: str, scope: TokenScope
) -> None:
    failed(desk, "1")
    order: dict[str, Any] = {"act": "remove", "queue": QUEUE, "reason": "not needed", "jobs": [{"id": "1"}]}
    desk.state.client.config_set("maxmemory", 1)
    try:
        answer = Machine(scope).post(address, order)
        assert 400 <= answer.status_code < 500
        assert "cannot be undone" in answer.content.decode()
        assert desk.client.zcard(f"{BASE}:failed") == 1
        answer = Machine(scope).post(address, order | {"options": {"force": True}})
        assert answer.status_code in (200, 202)
    finally:
        desk.state.client.config_set("maxmemory", 0)
