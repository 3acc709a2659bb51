from __future__ import annotations

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.base import context_processors
from dashboard.live import state_cache
from dashboard.live.cached_state import SnapshotHealth
from recovery import config
from recovery.config import Config, Deployment, DeploymentMode
from recovery.domain.queues.types import DeploymentSample, Snapshot
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db
FRESH = SnapshotHealth(snapshot_age_ms=800, scheduler_alive=True, stale=False)


def deployment(name: str, *, read_only: bool = False) -> Deployment:
    return Deployment(name=name, label=name.title(), mode=DeploymentMode.SINGLE, url="", nodes=(), read_only=read_only)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """All is well: fresh numbers, one deployment, no environment."""
    monkeypatch.setattr(state_cache, "health", lambda: FRESH)
    monkeypatch.setattr(state_cache, "newest_snapshot", lambda: Snapshot(1, 0, (), ()))
    monkeypatch.setattr(config, "current", lambda: Config(deployments=(deployment("main"),)))
    return monkeypatch


def page(role: UserRole = UserRole.VIEWER, address: str = "/password", **cookies: str) -> str:
    client = browser(person(role))
    client.cookies.load(cookies)
    return client.get(address).content.decode()


def test_the_navigation_has_the_pages_of_the_role() -> None:
    viewer, admin = page(), page(UserRole.ADMIN, "/users")
    assert 'href="/users"' not in viewer
    assert '<a href="/users" aria-current="page">Users</a>' in admin


def test_production_has_a_red_edge(house: pytest.MonkeyPatch) -> None:
    house.setattr(config, "current", lambda: Config(environment="production"))
    assert 'data-environment="production"' in page()


def test_another_environment_is_named_without_it(house: pytest.MonkeyPatch) -> None:
    house.setattr(config, "current", lambda: Config(environment="staging"))
    found = page()
    assert ">staging<" in found
    assert "data-environment" not in found


def test_the_switch_is_there_when_there_is_something_to_switch(house: pytest.MonkeyPatch) -> None:
    assert 'name="deployment"' not in page()


def test_the_switch_knows_the_deployment_of_the_page(house: pytest.MonkeyPatch) -> None:
    both = Config(deployments=(deployment("main"), deployment("eu")))
    house.setattr(config, "current", lambda: both)
    found = page(address="/palette?deployment=eu")
    assert '<option value="eu" selected>Eu</option>' in found
    assert '<option value="main">Main</option>' in found


def test_when_all_is_well_there_is_no_banner(house: pytest.MonkeyPatch) -> None:
    assert page(address="/banner").count("notice") == 0


def test_a_scheduler_that_stands_still_is_said(house: pytest.MonkeyPatch) -> None:
    house.setattr(state_cache, "health", lambda: SnapshotHealth(snapshot_age_ms=60_000, scheduler_alive=False))
    found = page()
    assert "The scheduler is not running." in found
    assert "manage.py scheduler" in found
    assert 'data-tone="stale"' in found


def test_a_scheduler_that_only_reads_is_said(house: pytest.MonkeyPatch) -> None:
    house.setattr(state_cache, "health", lambda: SnapshotHealth(800, scheduler_alive=True, stale=False, is_unled=True))
    found = page(address="/banner")
    assert "No scheduler leads, because it cannot reach the database." in found
    assert "nothing is recorded or recovered" in found


def test_a_deployment_that_is_away_is_said_with_target_error_and_advice(house: pytest.MonkeyPatch) -> None:
    dead = DeploymentSample("eu", "redis://10.0.0.9:6379", 0, error="Connection refused", advice="Is it running?")
    house.setattr(state_cache, "newest_snapshot", lambda: Snapshot(1, 0, (dead,), ()))
    found = page(address="/banner")
    for told in ("eu does not answer", "redis://10.0.0.9:6379", "Connection refused", "Is it running?"):
        assert told in found


def test_read_only_is_said(house: pytest.MonkeyPatch) -> None:
    house.setattr(config, "current", lambda: Config(deployments=(deployment("eu", read_only=True),)))
    assert "Read-only by configuration: Eu." in page(address="/banner")


def test_the_theme_of_the_cookie_is_in_the_first_byte_that_is_painted() -> None:
    assert '<html lang="en" data-theme="dark">' in page(**{context_processors.THEME_COOKIE: "dark"})


def test_a_theme_that_nobody_knows_is_the_systems() -> None:
    assert 'data-theme="system"' in page(**{context_processors.THEME_COOKIE: '"><script>'})


def test_without_javascript_a_form_sets_the_theme_and_comes_back() -> None:
    client = browser(person(UserRole.VIEWER))
    answer = client.post("/theme", {"theme": "dark"}, headers={"referer": "http://testserver/password"})
    assert answer.headers["Location"] == "http://testserver/password"
    assert answer.cookies[context_processors.THEME_COOKIE].value == "dark"
    assert 'data-theme="dark"' in client.get("/password").content.decode()


def test_a_referer_that_is_no_address_is_no_error() -> None:
    assert (
        browser(person(UserRole.VIEWER)).post("/theme", {"theme": "dark"}, headers={"referer": "x"}).status_code == 302
    )


def test_the_theme_leads_to_no_other_site() -> None:
    client = browser(person(UserRole.VIEWER))
    answer = client.post("/theme", {"theme": "dark"}, headers={"referer": "https://evil.example/"})
    assert answer.headers["Location"] == "/queues"
    assert context_processors.THEME_COOKIE not in client.post("/theme", {"theme": "neon"}).cookies
