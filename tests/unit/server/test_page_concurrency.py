"""Which places a request takes before Django sees it, and who is told to come back."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import Any

import pytest

from dashboard.live.session import Visitor
from dashboard.server import page_concurrency
from dashboard.server.page_concurrency import PageConcurrency
from dashboard.server.request_body import RequestRefused

TOKEN = [(b"authorization", b"Bearer unstall_x")]
ANNE, ALSO_ANNE, BOB = ([(b"cookie", f"unstall-session={name}".encode())] for name in ("anne", "also-anne", "bob"))
PEOPLE = {"unstall-session=anne": 1, "unstall-session=also-anne": 1, "unstall-session=bob": 2}


async def visitor_of(cookies: str) -> Visitor | None:
    return Visitor(PEOPLE[cookies], cookies) if cookies in PEOPLE else None


def scope(path: str, headers: list[Any] | None = None, *, method: str = "GET", address: str = "10.0.0.1") -> Any:
    path, _, query = path.partition("?")
    known = {"path": path, "query_string": query.encode(), "method": method, "client": (address, 1)}
    return {**known, "headers": headers or []}


class Desk:
    """Requests that took their places and are under way."""

    def __init__(self) -> None:
        self.places = PageConcurrency(visitor_of)
        self.under_way: list[asyncio.Task[tuple[ExitStack, ExitStack]]] = []

    async def ask(self, asked: Any) -> asyncio.Task[tuple[ExitStack, ExitStack]]:
        """Raises Refused."""
        task = asyncio.create_task(self._take(asked))
        self.under_way.append(task)
        for _ in range(10):
            await asyncio.sleep(0)
        if task.done():
            task.result()
        return task

    async def know(self, path: str, *holders: list[Any]) -> None:
        """Each of them was answered before, and what they sent was valid."""
        for headers in holders:
            asked = scope(path, headers)
            answered, _ = (await self.ask(asked)).result()
            asked[page_concurrency.VALID] = True
            answered.close()

    async def _take(self, asked: Any) -> tuple[ExitStack, ExitStack]:
        answered, sent = ExitStack(), ExitStack()
        await self.places.take(asked, answered, sent)
        return answered, sent


@pytest.fixture
async def desk() -> Any:
    desk = Desk()
    yield desk
    for task in desk.under_way:
        task.cancel()


async def test_a_token_has_its_calls_at_once_and_is_refused_beyond(desk: Desk) -> None:
    await desk.know("/api/v1/queues", TOKEN)
    for _ in range(page_concurrency.PAGES_EACH):
        assert (await desk.ask(scope("/api/v1/queues", TOKEN))).done()
    with pytest.raises(RequestRefused) as caught:
        await desk.ask(scope("/api/v1/queues", TOKEN))
    assert (caught.value.status, caught.value.retry) == (429, 1)
    assert (await desk.ask(scope("/queues", ANNE))).done(), "others go on"


async def test_a_browser_waits_beyond_its_share_and_others_go_on(desk: Desk) -> None:
    await desk.know("/queues", ANNE, BOB)
    for _ in range(page_concurrency.PAGES_EACH):
        first = await desk.ask(scope("/queues", ANNE))
    waiting = await desk.ask(scope("/queues", ANNE))
    assert not waiting.done()
    assert (await desk.ask(scope("/queues", BOB))).done()
    first.result()[0].close()
    await asyncio.sleep(0)
    assert waiting.done()


@pytest.mark.parametrize(
    ("path", "header"), [("/queues", "cookie: unstall-session="), ("/api/v1/queues", "authorization: Bearer ")]
)
async def test_made_up_sessions_and_tokens_are_their_address(desk: Desk, path: str, header: str) -> None:
    """Otherwise each had a share of its own, and one stranger all places."""
    name, value = header.split(": ")
    tasks = [
        await desk.ask(scope(path, [(name.encode(), f"{value}{number}".encode())], address="10.6.6.6"))
        for number in range(3 * page_concurrency.PAGES_AT_ONCE)
    ]
    assert sum(task.done() for task in tasks) == page_concurrency.PAGES_EACH
    assert (await desk.ask(scope("/queues", ANNE))).done(), "others go on"


async def test_as_many_are_remembered_as_valid_as_fit(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_concurrency, "VALID_MOST", 2)
    await desk.know("/queues", ANNE, BOB, ANNE, ALSO_ANNE)
    for _ in range(page_concurrency.PAGES_EACH):
        assert (await desk.ask(scope("/queues", ANNE))).done()
    assert not (await desk.ask(scope("/queues", ANNE))).done()
    assert (await desk.ask(scope("/queues", BOB))).done(), "by the address"
    assert len(desk.places._valid) == 2


async def test_a_person_makes_one_heavy_page_at_once_in_whatever_browser(desk: Desk) -> None:
    first = await desk.ask(scope("/tuning", ANNE))
    assert first.done()
    waiting = await desk.ask(scope("/search?q=x", ALSO_ANNE))
    assert not waiting.done()
    assert (await desk.ask(scope("/audit/export", BOB))).done()
    assert (await desk.ask(scope("/search", ANNE))).done(), "an empty form is no search"
    reveal = "/queues/main/bull:mail/jobs/1/reveal?tab=data"
    assert (await desk.ask(scope(reveal, ANNE, method="POST"))).done()
    assert not (await desk.ask(scope(f"{reveal}&whole=1", ANNE, method="POST"))).done()
    first.result()[0].close()
    await asyncio.sleep(0.01)
    assert not waiting.done(), "it is made while it is sent"
    first.result()[1].close()
    await asyncio.sleep(0.01)
    assert waiting.done()


@pytest.mark.parametrize(
    ("path", "method"),
    [
        *((f"/queues/main/bull:mail/jobs/1{part}?whole", "GET") for part in ("", "/life", "/tab", "/log")),
        *((f"/search{part}?{field}=x&by=data", "GET") for part in ("", "/part") for field in ("q", "id")),
        ("/logs?plain=1", "GET"),
        ("/logs/reveal?source=servers&id=1", "POST"),
        ("/audit/verify", "POST"),
        ("/audit/export", "GET"),
        ("/tuning", "POST"),
    ],
)
async def test_each_way_to_what_is_large_is_a_heavy_page(desk: Desk, path: str, method: str) -> None:
    assert (await desk.ask(scope("/tuning", ANNE))).done()
    assert not (await desk.ask(scope(path, ANNE, method=method))).done()
    assert (await desk.ask(scope("/logs", ANNE))).done()


async def test_whoever_asks_for_heavy_pages_without_end_is_refused(desk: Desk) -> None:
    for _ in range(1 + page_concurrency.HEAVY_WAITING):
        await desk.ask(scope("/tuning", ANNE))
    with pytest.raises(RequestRefused) as caught:
        await desk.ask(scope("/tuning", ANNE))
    assert (caught.value.status, caught.value.retry) == (429, page_concurrency.RETRY_SECONDS)
    assert (await desk.ask(scope("/tuning"))).done(), "a stranger is sent away by the page"


async def test_requests_of_one_address_that_wait_are_bounded_and_others_wait_beside_them(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_concurrency, "PAGES_WAITING", 2)
    for _ in range(page_concurrency.PAGES_EACH + 2):
        await desk.ask(scope("/login"))
    with pytest.raises(RequestRefused) as caught:
        await desk.ask(scope("/login"))
    assert (caught.value.status, caught.value.retry) == (503, page_concurrency.RETRY_SECONDS)
    assert (await desk.ask(scope("/login", address="10.0.0.2"))).done()


@pytest.mark.parametrize("path", ["/login", "/welcome/x", "/password", "/password/again"])
async def test_one_password_is_hashed_at_a_time_and_pages_go_on(desk: Desk, path: str) -> None:
    assert (await desk.ask(scope(path, method="POST"))).done()
    assert not (await desk.ask(scope("/login", method="POST", address="10.0.0.2"))).done()
    assert (await desk.ask(scope("/login"))).done()
    assert (await desk.ask(scope("/queues", ANNE))).done()


async def test_one_address_fills_no_more_than_its_part_of_the_queue(desk: Desk) -> None:
    for number in range(1 + page_concurrency.HASHES_WAITING):
        await desk.ask(scope("/login", method="POST", address=f"2001:db8::{number}"))
    with pytest.raises(RequestRefused) as own:
        await desk.ask(scope("/login", method="POST", address="2001:db8::ffff"))
    assert (own.value.status, own.value.retry) == (429, 2)
    for number in range(page_concurrency.HASHES_QUEUE - page_concurrency.HASHES_WAITING):
        await desk.ask(scope("/login", method="POST", address=f"10.0.0.{number}"))
    with pytest.raises(RequestRefused) as full:
        await desk.ask(scope("/login", method="POST", address="10.0.1.1"))
    assert (full.value.status, full.value.retry) == (503, 5)


async def test_a_password_that_is_never_looked_at_is_told_so(desk: Desk) -> None:
    desk.places.hashes._seconds = 0.01
    await desk.ask(scope("/login", method="POST"))
    with pytest.raises(RequestRefused) as caught:
        await (await desk.ask(scope("/login", method="POST", address="10.0.0.2")))
    assert caught.value.status == 503
