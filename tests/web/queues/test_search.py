"""Finding jobs: by id at once, by name or data in slices that anybody may stop."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from recovery.reads.queues import search
from tests.support.people import browser, text
from tests.support.stuck.watching import add, bullmq, finish, now_ms
from tests.web.conftest import Desk

pytestmark = pytest.mark.django_db
MAIL, VIDEO = "bull:mail", "bull:video"


def jobs(page: str) -> list[str]:
    return re.findall(r'class="id" href="([^"]*)"', page)


def searched(client: Client, address: str) -> tuple[list[str], int]:
    """All that a search finds when it is asked on and on, and in how many slices."""
    page, slices = text(client, address), 1
    found = jobs(page)
    while following := re.search(r'hx-get="(/search/part[^"]*)"', page):
        page = text(client, following[1].replace("&amp;", "&"))
        found += jobs(page)
        slices += 1
    return found, slices


def test_an_id_is_found_at_once_in_every_queue(desk: Desk, viewer: Client) -> None:
    for base in (MAIL, VIDEO):
        bullmq(desk.client, base)
        add(desk.client, base, "41")
    desk.look(MAIL, VIDEO)
    page = text(viewer, "/search?q=41")
    assert jobs(page) == ["/queues/main/bull:mail/jobs/41", "/queues/main/bull:video/jobs/41"]
    assert jobs(text(viewer, "/search?q=41&queue=main/bull:video")) == ["/queues/main/bull:video/jobs/41"]


@pytest.mark.parametrize("id", ["42", "wait", "meta", "id", "7:lock", "%", "<b>"])
def test_what_is_no_job_is_not_found(desk: Desk, viewer: Client, id: str) -> None:
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, "7")
    desk.client.set(f"{MAIL}:7:lock", "x")
    desk.look(MAIL)
    answer = viewer.get("/search", {"q": id})
    assert b"No job has this id" in answer.content


def test_a_name_is_found_slice_by_slice(desk: Desk, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "NAME_BUDGET", 20)
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, *(f"w{index}" for index in range(50)))
    finish(desk.client, MAIL, *(now_ms() - index for index in range(30)))
    add(desk.client, MAIL, "needle", name="Weekly Digest")
    desk.look(MAIL)
    found, slices = searched(viewer, "/search?q=digest&by=name&queue=main/bull:mail")
    assert found == ["/queues/main/bull:mail/jobs/needle"]
    assert slices > 3


def test_each_job_is_found_once(desk: Desk, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "NAME_BUDGET", 7)
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, *(f"w{index}" for index in range(40)))
    finish(desk.client, MAIL, *(now_ms() - index for index in range(25)), outcome="failed")
    desk.look(MAIL)
    found, _ = searched(viewer, "/search?q=mail&by=name&queue=main/bull:mail")
    assert len(found) == len(set(found)) == 65


def test_without_script_the_search_goes_on_by_a_link(
    desk: Desk, viewer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "NAME_BUDGET", 10)
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, *(f"w{index}" for index in range(15)))
    desk.look(MAIL)
    page = text(viewer, "/search?q=nothing&by=name&queue=main/bull:mail&state=waiting")
    assert "10 of 15 searched" in page
    link = re.search(r'id="go-on" href="([^"]*)"', page)
    assert link is not None
    assert "Search complete. 15 searched, 0 found" in text(viewer, link[1].replace("&amp;", "&"))


def test_a_search_ends_at_its_limits(desk: Desk, viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, *(f"w{index}" for index in range(30)))
    desk.look(MAIL)
    monkeypatch.setattr(search, "FOUND_LIMIT", 4)
    page = text(viewer, "/search?q=mail&by=name&queue=main/bull:mail")
    assert len(jobs(page)) == 4
    assert "Stopped at 4 matches" in page
    monkeypatch.setattr(search, "FOUND_LIMIT", 500)
    monkeypatch.setattr(search, "EXAMINED_LIMIT", 10)
    assert "Stopped after 10 jobs" in text(viewer, "/search?q=zzz&by=name&queue=main/bull:mail")


def test_data_is_searched_by_those_who_may_read_it(desk: Desk, viewer: Client, operator: Client) -> None:
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, "1", data=json.dumps({"to": "ada@example.org"}))
    add(desk.client, MAIL, "2", data=json.dumps({"to": "bob@example.org"}))
    desk.look(MAIL)
    address = "/search?q=ada%40example&by=data&queue=main/bull:mail"
    assert searched(operator, address)[0] == ["/queues/main/bull:mail/jobs/1"]
    text(viewer, address, status=403)
    text(viewer, address.replace("/search?", "/search/part?"), status=403)
    assert 'value="data"' not in text(viewer, "/search")


def test_a_name_without_a_queue_asks_for_one(desk: Desk, viewer: Client) -> None:
    desk.look()
    assert "needs a single queue" in text(viewer, "/search?q=x&by=name")


@pytest.mark.parametrize(
    "nonsense", ["cursor=garbage", "cursor=99!x&progress=a.b.c", "progress=-1.2.3", "queue=~zz", "state=x"]
)
def test_an_address_with_nonsense_searches_from_the_start(desk: Desk, viewer: Client, nonsense: str) -> None:
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, "1")
    desk.look(MAIL)
    text(viewer, f"/search?q=mail&by=name&queue=main/bull:mail&{nonsense}")


def test_a_silent_store_is_told_and_is_no_empty_result(desk: Desk, viewer: Client) -> None:
    bullmq(desk.client, MAIL)
    add(desk.client, MAIL, "1")
    desk.look(MAIL)
    desk.store.pause()
    try:
        page = text(viewer, "/search?q=1")
    finally:
        desk.store.resume()
    assert "Not searched" in page


def test_a_stranger_finds_nothing(desk: Desk) -> None:
    for address in ("/search?q=1", "/search/part?q=1"):
        assert browser().get(address).status_code == 302
