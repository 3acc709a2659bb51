"""A queue with a key that is far too long: pages and API name it and say why, and show all others as ever."""

from __future__ import annotations

import pytest
from django.test import Client

from dashboard.accounts.token_scopes import TokenScope
from tests.support.machines import Machine, told
from tests.support.stuck import hostile_sizes
from tests.support.stuck.hostile_sizes import MIB, Planting
from tests.support.stuck.watching import add, bullmq
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
EVIL, MAIL = "bull:evil", "bull:mail"


@pytest.mark.parametrize("planting", [hostile_sizes.id_in_active, hostile_sizes.paused], ids=lambda one: one.__name__)
def test_the_queue_is_named_with_the_key_that_is_too_long(desk: Desk, viewer: Client, planting: Planting) -> None:
    for base in (EVIL, MAIL):
        bullmq(desk.client, base)
    add(desk.client, MAIL, "1")
    planting(desk.client, EVIL, 6 * MIB)
    desk.look(EVIL, MAIL)
    page = viewer.get("/queues").content.decode()
    assert page.count("skipped: the answer to") == 1
    queues = {queue["id"]: queue for queue in told(Machine(TokenScope.READ).get("queues"))["queues"]}
    assert "is longer than 1 MiB" in queues[EVIL]["error"]
    assert (queues[MAIL]["error"], queues[MAIL]["counts"]["waiting"]) == (None, 1)


def test_a_list_that_cannot_be_read_says_why(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, EVIL)
    hostile_sizes.id_in_active(desk.client, EVIL, 6 * MIB)
    desk.look(EVIL)
    page = viewer.get(f"/queues/main/{EVIL}/?tab=active").content.decode()
    assert "the answer to LRANGE bull:evil:active is longer than 4 MiB" in page
    assert "The named key holds more than any library writes there." in page
