"""/alerts and its API: what is wrong, who was told, and a channel that an admin tries out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.urls import resolve

from dashboard.accounts.roles import UserRole
from dashboard.accounts.token_scopes import TokenScope
from dashboard.alerts import views as view
from recovery.alerts import channel_health, delivery
from recovery.alerts.channel_health import ChannelHealth
from recovery.alerts.store import DatabaseAlertStore
from recovery.domain.alerts.types import AlertDelivery, AlertEvent, AlertKind, AlertRecord
from recovery.models import AuditEntry
from recovery.stores import registry
from tests.support.machines import Machine
from tests.support.people import browser, person
from tests.support.processes.processes import free_port
from tests.support.receivers import Hooked, hooked
from tests.support.stuck.watching import now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db(transaction=True)
NASTY = '"><img src=x onerror=alert(1)>'
SECRET = "s3cr3t"  # of the receiver's address


@pytest.fixture
def hook() -> Iterator[Hooked]:
    with hooked() as made:
        yield made


@pytest.fixture
def admin(desk: Desk, hook: Hooked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(delivery, "SECONDS", 30.0)  # more than a busy machine needs
    toml = tmp_path / "unstall.toml"
    toml.write_text(
        f"""{toml.read_text()}
[alerts]
after = 10
[[alerts.webhooks]]
name = "ops"
url = "{hook.url}"
[[alerts.webhooks]]
name = "gone"
url = "http://127.0.0.1:{free_port()}/{SECRET}"
kinds = ["gate"]
"""
    )
    registry.reset()
    view._shown.forget()
    return browser(person(UserRole.ADMIN))


def stands(
    words: str = "3 jobs are abandoned in main/bull:mail.", *, key: str = "main/bull:mail", **facts: Any
) -> AlertRecord:
    at = now_ms()
    told = {"link": "/stuck?queue=main%2Fbull%3Amail", "size": 3, "since": at - 60_000, "seen_at": at} | facts
    added = DatabaseAlertStore(frozenset(AlertKind)).add(AlertRecord(AlertKind.ABANDONED, key, words, **told))
    assert added
    view._shown.forget()
    return added


def text(client: Client, address: str = "/alerts") -> str:
    answer = client.get(address)
    assert answer.status_code == 200, answer.content.decode()
    return answer.content.decode()


def test_it_tells_what_is_wrong_and_who_knows(admin: Client) -> None:
    stands(heard={"ops": AlertDelivery(AlertEvent.FIRING, now_ms() - 30_000, 3, 1)})
    stands("blip", key="main/bull:blip", since=now_ms() - 3000)
    page = text(admin)
    assert '<a href="/stuck?queue=main%2Fbull%3Amail">Abandoned jobs</a>' in page
    assert "3 jobs are abandoned in main/bull:mail." in page
    assert "<b>ops</b> notified <time" in page
    assert "blip" not in page, "it has not lasted yet"
    assert "<b>gone</b>" not in page, "it is told of gates only"


def test_what_is_over_is_told_with_its_length(admin: Client) -> None:
    at = now_ms()
    stands(resolved_at=at, since=at - 180_000, heard={"ops": AlertDelivery(AlertEvent.RESOLVED, at, 3, 2)})
    page = text(admin)
    assert "No firing alerts." in page
    assert "after 3 min" in page
    assert "<b>ops</b> notified: resolved" in page


def test_names_are_only_text_and_addresses_keep_their_secret(admin: Client) -> None:
    stands(f"1 job of {NASTY} is quarantined.")
    channel_health.write(registry.registry().state(), "ops", ChannelHealth(trouble=NASTY, tries=2, failed_at=now_ms()))
    for client in (admin, browser(person(UserRole.VIEWER))):
        page = text(client)
        assert "<img src=x" not in page
        assert SECRET not in page
        assert "127.0.0.1" in page


def test_an_admin_tries_a_channel_out_and_the_audit_knows(admin: Client, hook: Hooked) -> None:
    page = text(admin)
    assert 'action="/alerts/test/ops"' in page
    answer = admin.post("/alerts/test/ops", follow=True)
    assert "Test delivered to ops." in answer.content.decode()
    (posted,) = hook.posted
    assert (posted.told["event"], posted.told["alerts"]) == ("test", [])
    entry = AuditEntry.objects.latest("number")
    assert (entry.act, entry.actor) == ("alert test", "some-admin")
    assert SECRET not in entry.body
    assert channel_health.read(registry.registry().state())["ops"].told_at


def test_a_channel_that_fails_says_why(admin: Client) -> None:
    answer = admin.post("/alerts/test/gone", follow=True)
    page = answer.content.decode()
    assert "gone could not be notified: Connection refused." in page
    assert '<span class="badge" data-state="failing">failing</span>' in page
    assert SECRET not in page
    assert AuditEntry.objects.latest("number").act == "alert test"


def test_only_an_admin_tries_out(admin: Client, hook: Hooked) -> None:
    operator = browser(person(UserRole.OPERATOR))
    assert "/alerts/test/" not in text(operator)
    assert operator.post("/alerts/test/ops").status_code == 403
    assert admin.post("/alerts/test/nobody").status_code == 404
    assert hook.posted == []


def test_without_the_state_store_it_says_that_nothing_is_known_of_the_channels(desk: Desk, admin: Client) -> None:
    desk.state.pause()
    try:
        page = text(admin)
    finally:
        desk.state.resume()
    assert "The state store does not answer." in page
    assert '<span class="badge" data-state="unknown">unknown</span>' in page


def test_without_a_channel_the_page_says_how_to_get_one(desk: Desk) -> None:
    view._shown.forget()
    page = text(browser(person(UserRole.VIEWER)))
    assert "No notification channel configured." in page
    assert "docs/alerts.md" in page


def test_the_api_tells_the_same(admin: Client) -> None:
    stands(heard={"ops": AlertDelivery(AlertEvent.FIRING, 5, 3, 1)})
    told = Machine(TokenScope.READ).get("/api/v1/alerts").json()
    (alert,) = told["firing"]
    assert (alert["kind"], alert["key"], alert["size"]) == ("abandoned", "main/bull:mail", 3)
    assert alert["told"] == [{"channel": "ops", "event": "firing", "at": 5}]
    assert [channel["name"] for channel in told["channels"]] == ["ops", "gone"]
    assert (told["over"], told["channels_known"]) == ([], True)
    assert SECRET not in str(told)


def test_every_link_of_an_alert_leads_to_a_page() -> None:
    for link in ("/stuck", "/scanners", "/queues", "/alerts", "/servers/eu-1"):
        assert resolve(link).url_name != "api-nowhere"
