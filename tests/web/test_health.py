from __future__ import annotations

import pytest
from django.db import OperationalError, connection

from dashboard.live import mirror
from dashboard.live.image import Health
from tests.people import browser

FRESH = Health(snapshot_age_ms=800, scheduler_alive=True, stale=False)


def healthy(monkeypatch: pytest.MonkeyPatch, health: Health) -> None:
    monkeypatch.setattr(mirror, "health", lambda: health)


def test_alive_asks_nobody() -> None:
    """No database mark on this test: a query would fail it."""
    answer = browser().get("/healthz")
    assert answer.status_code == 200
    assert answer.json() == {"alive": True, "scanners": None}
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_probe_comes_by_address_whatever_host_it_names() -> None:
    assert browser().get("/healthz", headers={"host": "10.42.0.7:8000"}).status_code == 200


@pytest.mark.django_db
def test_ready_needs_database_state_store_and_fresh_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(monkeypatch, FRESH)
    answer = browser().get("/readyz")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "reasons": []}


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("health", "reason"),
    [
        (Health(error="redis://:hunter2@10.0.0.1 refused"), "state store: does not answer"),
        (Health(), "snapshot: none yet"),
        (Health(snapshot_age_ms=34_500), "snapshot: 34 s old"),
    ],
)
def test_not_ready_says_what_is_missing_and_nothing_secret(
    monkeypatch: pytest.MonkeyPatch, health: Health, reason: str
) -> None:
    healthy(monkeypatch, health)
    answer = browser().get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {"ready": False, "reasons": [reason]}
    assert b"hunter2" not in answer.content
    assert b"10.0.0.1" not in answer.content


@pytest.mark.django_db
def test_a_dead_database_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(monkeypatch, FRESH)

    def dead() -> None:
        raise OperationalError("connection to server at 10.0.0.2 failed: password hunter2")

    monkeypatch.setattr(connection, "cursor", dead)
    answer = browser().get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["database: does not answer"]
