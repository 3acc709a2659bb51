"""What a browser saves when somebody downloads a page's data."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page

from tests.browser.seeds import Seeds
from tests.support.processes.site import Site
from tests.support.processes.web_process import COOKIE


@pytest.fixture(scope="module")
def entries(live_site: Site, seeds: Seeds) -> list[str]:
    """Reasons of some entries of the audit, more than one piece of the download."""
    queue = "/".join(seeds.empty.strip("/").split("/")[1:])
    reasons = ["the first of two", "the second of two"]
    for reason in reasons:
        done = live_site.shell("act", "resume", "--queue", queue, "--reason", reason, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
    return reasons


def test_the_audit_is_downloaded_whole(
    open_page: Callable[..., Page], live_site: Site, entries: list[str], tmp_path: Path
) -> None:
    page = open_page("/audit")
    for name, reasons in (("CSV", _csv_reasons), ("JSON", _json_reasons)):
        with page.expect_download() as saved:
            page.get_by_role("link", name=f"Export {name}").click()
        file = tmp_path / name
        saved.value.save_as(file)
        assert set(entries) <= reasons(file.read_text()), name


def test_a_program_that_takes_compressed_answers_gets_it_whole(live_site: Site, entries: list[str]) -> None:
    cookies = {COOKIE: live_site.cookie("admin")}
    answer = httpx.get(f"{live_site.url}/audit/export?format=csv", cookies=cookies, headers={"Accept-Encoding": "gzip"})
    assert set(entries) <= _csv_reasons(answer.text)


def _csv_reasons(text: str) -> set[str]:
    return {row["reason"] for row in csv.DictReader(text.splitlines())}


def _json_reasons(text: str) -> set[str]:
    return {entry["reason"] for entry in json.loads(text)}
