"""The product starts as in production, and each role is let in."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.support.accessibility import barriers
from tests.support.processes.site import Site


@pytest.mark.parametrize("person", ["viewer", "operator", "admin"])
def test_each_role_is_logged_in(open_page: Callable[..., Page], person: str) -> None:
    page = open_page("/queues", person=person)
    expect(page).not_to_have_url("**/login*")
    assert page.title()


def test_a_stranger_is_asked_to_log_in(open_page: Callable[..., Page], live_site: Site) -> None:
    page = open_page("/queues", person="")
    assert page.url.startswith(f"{live_site.url}/login")


def test_a_page_that_keeps_somebody_out_is_found(open_page: Callable[..., Page]) -> None:
    page = open_page("/login", person="")
    assert barriers(page) == []
    page.evaluate("document.querySelectorAll('label').forEach((label) => label.remove())")
    assert any("label" in line for line in barriers(page))
