"""The banner above every page while a store is held, and what an open page hears of it."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from dashboard.accounts.roles import UserRole
from dashboard.live import events, state_cache
from recovery.actions.safety_limits import auto_retry_limits
from recovery.reads.safety_limits import paused_deployments
from recovery.reads.safety_limits import queries as book
from tests.support.acting import ADMIN
from tests.support.people import browser, person
from tests.support.stuck.watching import bullmq, now_ms
from tests.web.acting import BASE
from tests.web.conftest import Desk
from tests.web.safety_limit_rows import hold_store

pytestmark = pytest.mark.django_db(transaction=True)
SAYS = "Auto-recovery paused on main."


def test_every_page_says_that_scanners_hold_why_and_for_how_long(desk: Desk) -> None:
    bullmq(desk.client, BASE)
    desk.look(BASE)
    hold_store()
    client = browser(person(UserRole.VIEWER))
    for address in ("/queues", f"/queues/main/{BASE}/", "/stuck", "/audit", "/password"):
        page = client.get(address).content.decode()
        assert SAYS in page, address
        assert "380 of 400 active jobs lost their locks between two checks" in page
        assert "min more or until a person resumes it." in page
        assert '<a href="/scanners#safety-limits">Safety limits</a>' in page


def test_it_is_gone_with_the_hold(desk: Desk) -> None:
    hold_store()
    client = browser(person(UserRole.VIEWER))
    assert SAYS in client.get("/banner").content.decode()
    auto_retry_limits.release(ADMIN, "store", "main", "", "", "the workers are restarted")
    assert SAYS not in client.get("/banner").content.decode()


def test_a_stranger_is_told_nothing(desk: Desk) -> None:
    hold_store()
    assert SAYS not in browser().get("/login").content.decode()


def test_a_page_comes_when_the_safety_limits_cannot_be_read(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: object) -> None:
        raise OperationalError

    hold_store()
    monkeypatch.setattr(book, "redis_pauses", away)
    answer = browser(person(UserRole.VIEWER)).get("/banner")
    assert answer.status_code == 200
    assert SAYS not in answer.content.decode()


def test_an_open_page_hears_when_a_hold_begins_and_when_it_ends(desk: Desk) -> None:
    def problems() -> bytes:
        state_cache.forget_cached()
        return events.tick(state_cache._image(), now_ms())

    assert b"auto-recovery paused" not in problems()
    paused_deployments.publish(desk.state.client, ["main"])
    assert b'"main: auto-recovery paused"' in problems()
    paused_deployments.publish(desk.state.client, [])
    assert b"auto-recovery paused" not in problems()
