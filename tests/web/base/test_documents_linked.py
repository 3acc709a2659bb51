"""A document that a page names is a link, and the page is as long as it says."""

from __future__ import annotations

import pytest

from dashboard.accounts.roles import UserRole
from tests.support.people import browser, person

pytestmark = pytest.mark.django_db


def test_a_page_with_links_put_in_says_its_whole_length() -> None:
    answer = browser(person(UserRole.ADMIN)).get("/alerts")
    assert b'href="/docs/alerts.md"' in answer.content or b'href="/docs/alerts"' in answer.content
    assert int(answer["Content-Length"]) == len(answer.content)
