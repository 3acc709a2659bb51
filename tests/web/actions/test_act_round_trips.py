"""What a person or a program waits for: how often one act on one job asks the queues' Redis, by page, API and shell."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.test import Client

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from recovery.reads.queues import snapshot_store
from recovery.stores import registry
from tests.support.counting import round_trips
from tests.support.machines import Machine, told
from tests.support.people import browser, person
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watching import bull
from tests.web.acting import BASE, ask, confirm, queue, through
from tests.web.acting import failed as fail_in_redis
from tests.web.conftest import Desk

# The audit commits its intent before anything is done: a test's own transaction would be in its way.
pytestmark = pytest.mark.django_db(transaction=True)
MOST = 4
FLAVOURS = {"bullmq5": BULLMQ, "bull4": LibraryVersion(QueueLibrary.BULL, 4)}


@pytest.fixture
def operator() -> Client:
    return browser(person(UserRole.OPERATOR))


@pytest.fixture(params=FLAVOURS)
def failed(request: pytest.FixtureRequest, desk: Desk, operator: Client) -> Desk:
    """Two failed jobs; one is retried, so that connections are open and the server knows the scripts."""
    queue(desk)
    fail_in_redis(desk, "first", "1")
    if request.param == "bull4":
        bull(desk.client, BASE)
        for id in ("first", "1"):
            desk.client.hdel(f"{BASE}:{id}", "atm")
    snapshot_store.publish(registry.registry().state(), desk.look(BASE, flavour=FLAVOURS[request.param]))
    desk.forget()
    assert through(operator, ask("retry", "first")).status_code == 200
    return desk


def is_retried(desk: Desk) -> bool:
    return b"1" in desk.client.lrange(f"{BASE}:wait", 0, -1)


def test_by_page(failed: Desk, operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    with round_trips(monkeypatch) as dialog:
        shown = operator.get(ask("retry", "1"))
    with round_trips(monkeypatch) as act:
        confirm(operator, ask("retry", "1"), shown.content)
    assert is_retried(failed)
    assert len(dialog) == 1, dialog
    assert len(act) <= MOST, act


def test_by_api(failed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(TokenScope.READ, TokenScope.ACT)
    order = {"act": "retry", "queue": f"main/{BASE}", "jobs": [{"id": "1"}], "reason": "host is back"}
    with round_trips(monkeypatch) as sent:
        done = told(machine.post("actions", order))
    assert [one["outcome"] for one in done["results"]] == ["done"]
    assert len(sent) <= MOST, sent


def test_by_shell(failed: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    said = StringIO()
    with round_trips(monkeypatch) as sent:
        call_command("act", "retry", "--queue", BASE, "--job", "1", "--reason", "host is back", stdout=said)
    assert is_retried(failed), said.getvalue()
    assert len(sent) <= MOST, sent
