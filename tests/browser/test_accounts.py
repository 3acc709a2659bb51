"""Sessions and the second factor as a person meets them, in a real browser."""

from __future__ import annotations

import base64
import hashlib
import hmac
import struct
import time
from collections.abc import Callable

from playwright.sync_api import Page, expect

Open = Callable[..., Page]


def code_of(secret: str, drift: int = 0) -> str:
    """As an authenticator makes it of the key that it was told."""
    key = base64.b32decode(secret + "=" * (-len(secret) % 8))
    digest = hmac.digest(key, struct.pack(">Q", int(time.time()) // 30 + drift), hashlib.sha1)
    at = digest[-1] & 15
    return f"{(struct.unpack('>I', digest[at : at + 4])[0] & 0x7FFFFFFF) % 1_000_000:06}"


def log_in(page: Page, name: str) -> None:
    page.goto("/login?next=/sessions")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(f"pass-{name}")
    page.get_by_role("button", name="Log in").click()


def test_a_session_is_ended_from_another_browser(open_page: Open) -> None:
    here, there = open_page("/login", person=""), open_page("/login", person="")
    for page in (here, there):
        log_in(page, "fifth")
        expect(page.get_by_role("heading", level=1)).to_have_text("Your sessions")
        expect(page.get_by_role("row").filter(has_text="this one")).to_have_count(1)
    here.reload()
    here.get_by_role("row").filter(has_not_text="this one").get_by_role("button", name="End the session").first.click()
    expect(here.get_by_text("A session of fifth was ended.")).to_be_visible()
    expect(there.get_by_role("heading", level=1), "its page leaves by itself").to_have_text("Log in", timeout=60_000)


def test_somebody_enrols_an_authenticator_and_logs_in_with_it(open_page: Open) -> None:
    page = open_page("/two-factor", person="sixth")
    picture = page.locator("svg.qr").bounding_box()
    assert picture
    assert picture["width"] > 150, "a camera has to read it"
    secret = page.locator("#two-factor-key").inner_text()
    page.get_by_role("textbox", name="Code").fill(code_of(secret))
    page.get_by_role("button", name="Turn on").click()
    expect(page.get_by_role("list", name="Recovery codes").get_by_role("listitem")).to_have_count(10)
    page.get_by_role("link", name="I have saved them").click()
    expect(page.get_by_text("10 recovery codes left")).to_be_visible()

    other = open_page("/login", person="")
    log_in(other, "sixth")
    expect(other.get_by_role("heading", level=1)).to_have_text("Two-factor authentication")
    other.get_by_role("textbox", name="Code").fill(code_of(secret, 1))  # the one of now was taken already
    other.get_by_role("button", name="Log in").click()
    expect(other.get_by_role("heading", level=1)).to_have_text("Your sessions")
