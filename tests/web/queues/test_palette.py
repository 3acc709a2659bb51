from __future__ import annotations

import pytest

from dashboard.accounts.roles import UserRole
from dashboard.live import state_cache
from dashboard.queues import command_palette
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import QueueSample, Snapshot
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def queues(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["bull:mail", "bull:mail-out", "bull:e mail/ü", *(f"bull:bulk-{number}" for number in range(40))]
    snapshot = Snapshot(1, 0, (), tuple(QueueSample(QueueRef("main", name)) for name in names))
    monkeypatch.setattr(state_cache, "newest_snapshot", lambda: snapshot)


def found(query: str, role: UserRole = UserRole.VIEWER) -> str:
    answer = browser(person(role)).get("/palette", {"q": query}, headers={"HX-Request": "true"})
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_queue_is_found_by_a_part_of_its_name() -> None:
    page = found("mail")
    assert 'href="/queues/main/bull:mail/"' in page
    assert 'href="/queues/main/bull:e~20mail~2F~C3~BC/"' in page
    assert page.index("bull:mail<") < page.index("bull:e mail")


def test_every_word_must_fit() -> None:
    assert "bull:mail-out" in found("out mail")
    assert "bull:mail<" not in found("out mail")


def test_a_long_list_is_cut_and_says_so() -> None:
    page = found("bulk")
    assert page.count("bull:bulk-") == command_palette.QUEUES_SHOWN * 2
    assert "28 more queues" in page


def test_a_job_is_looked_for_by_its_id() -> None:
    assert 'href="/search?id=repeat%3A1+2"' in found("repeat:1 2")


def test_pages_are_those_the_role_may_see() -> None:
    assert 'href="/users"' not in found("users")
    assert 'href="/users"' in found("users", UserRole.ADMIN)


def test_what_was_typed_is_text() -> None:
    assert "<script" not in found("<script>alert(1)</script>")


def test_without_javascript_it_is_a_page() -> None:
    page = browser(person(UserRole.VIEWER)).get("/palette", {"q": "mail"}).content.decode()
    assert "<!doctype html>" in page
    assert 'href="/queues/main/bull:mail/"' in page
