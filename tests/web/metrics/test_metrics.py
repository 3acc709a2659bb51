"""Who may scrape, and that a scrape asks nobody: no test without a mark for the database may query it, and no store is
configured here at all.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from dashboard.accounts import token_cache, tokens
from dashboard.accounts.token_scopes import TokenScope
from dashboard.live.cached_state import CachedState
from dashboard.metrics.asgi import PATH, MetricsApp
from dashboard.metrics.exposition import MetricsFormat
from dashboard.models import MachineToken
from recovery import config
from tests.support.scraping import full, of_text, value

LOCAL = ("127.0.0.1", 40_000)


@dataclass
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class Scraper:
    """Asks the application as a server would hand it on."""

    def __init__(self, image: CachedState | None) -> None:
        self.clock = 1_000.0
        self.app = MetricsApp(lambda: image, lambda: 3)
        self.app._bearers = token_cache.TokenCache(lambda: self.clock)

    async def ask(
        self, headers: Mapping[str, str] | None = None, *, client: Any = LOCAL, method: str = "GET", query: str = ""
    ) -> Answer:
        sent = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
        if "host" not in {name.decode() for name, _ in sent}:
            sent.append((b"host", b"127.0.0.1:8000"))
        scope = {"type": "http", "method": method, "path": PATH, "query_string": query.encode(), "headers": sent}
        answer = Answer()

        async def receive() -> Any:
            raise AssertionError("nothing is read")

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                answer.body += message["body"]

        await self.app({**scope, "client": client}, receive, send)
        return answer


@pytest.fixture
def scraper() -> Scraper:
    return Scraper(full().image)


@pytest.fixture
def open_on_loopback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "unstall.toml").write_text("[metrics]\nopen_on_loopback = true\n")
    monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
    config.current.cache_clear()


@pytest.fixture(autouse=True)
def _as_before() -> Any:
    yield
    config.current.cache_clear()


def made(*scopes: TokenScope) -> str:
    return tokens.make("prometheus", frozenset(scopes), 1, None)[1]


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


# -- what is told, to whoever may ask


@pytest.mark.usefixtures("open_on_loopback")
async def test_the_format_is_the_one_that_is_asked_for(scraper: Scraper) -> None:
    plain = await scraper.ask()
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    opened = await scraper.ask({"Accept": "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"})
    assert opened.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    for answer, dialect in ((plain, MetricsFormat.TEXT), (opened, MetricsFormat.OPEN)):
        series = of_text(answer.body.decode(), dialect)
        assert value(series, "unstall_streams") == 3
        assert len(answer.body) == int(answer.headers["content-length"])


@pytest.mark.usefixtures("open_on_loopback")
@pytest.mark.parametrize("version", ["abc", "1.x.0", "\xb2.0"])
async def test_a_format_that_there_is_none_of_is_answered_as_plain_text(scraper: Scraper, version: str) -> None:
    answer = await scraper.ask({"Accept": f"application/openmetrics-text; version={version}"})
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")


@pytest.mark.usefixtures("open_on_loopback")
async def test_an_answer_is_squeezed_for_whoever_can_open_it(scraper: Scraper) -> None:
    plain, squeezed = await scraper.ask(), await scraper.ask({"Accept-Encoding": "gzip"})
    assert squeezed.headers["content-encoding"] == "gzip"
    assert len(squeezed.body) * 4 < len(plain.body)
    assert value(of_text(gzip.decompress(squeezed.body).decode()), "unstall_streams") == 3
    assert (await scraper.ask({"Accept-Encoding": "gzip;q=0, br"})).headers.get("content-encoding") is None


@pytest.mark.usefixtures("open_on_loopback")
async def test_a_head_has_no_body_and_nothing_else_is_taken(scraper: Scraper) -> None:
    head = await scraper.ask(method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 1_000
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert (await scraper.ask(method=method)).status == 405


@pytest.mark.usefixtures("open_on_loopback")
async def test_a_process_that_has_no_mirror_says_so() -> None:
    answer = await Scraper(None).ask()
    assert (answer.status, answer.headers["retry-after"]) == (503, "5")


# -- who is let in


async def test_without_a_token_nothing_is_told_not_even_on_loopback(scraper: Scraper) -> None:
    for headers in ({}, {"Authorization": "Basic YTpi"}, {"Authorization": "Bearer "}, {"Cookie": "unstall-session=x"}):
        answer = await scraper.ask(headers)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert b"unstall_" not in answer.body


@pytest.mark.usefixtures("open_on_loopback")
@pytest.mark.parametrize(
    ("client", "headers"),
    [
        (("10.0.0.7", 40_000), {}),
        (("127.0.0.1", 0), {}),  # a unix socket: whoever is behind it came through a proxy
        (None, {}),
        (LOCAL, {"X-Forwarded-For": "127.0.0.1"}),
        (LOCAL, {"Forwarded": "for=127.0.0.1"}),
        (LOCAL, {"X-Real-IP": "127.0.0.1"}),
        (LOCAL, {"Via": "1.1 proxy"}),
        (LOCAL, {"Host": "evil.example.com"}),
        (LOCAL, {"Host": "evil.example.com:8000"}),
        (LOCAL, {"Host": "127.0.0.1.evil.example.com"}),
        (LOCAL, {"Host": "10.0.0.7:8000"}),
        (LOCAL, {"Host": ""}),
    ],
)
async def test_loopback_is_a_peer_of_this_machine_that_asks_for_it(
    scraper: Scraper, client: Any, headers: dict[str, str]
) -> None:
    assert (await scraper.ask(headers, client=client)).status == 401


@pytest.mark.usefixtures("open_on_loopback")
@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("127.0.0.1", "127.0.0.1:8000"),
        ("127.9.9.9", "localhost"),
        ("::1", "[::1]:8000"),
        ("::ffff:127.0.0.1", "LOCALHOST:80"),
    ],
)
async def test_this_machine_itself_is_let_in_when_configured(scraper: Scraper, address: str, host: str) -> None:
    assert (await scraper.ask({"Host": host}, client=(address, 40_000))).status == 200


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("open_on_loopback")
async def test_a_wrong_token_is_refused_where_none_is_needed(scraper: Scraper) -> None:
    assert (await scraper.ask(bearer("unstall_" + "x" * 40))).status == 401


@pytest.mark.django_db(transaction=True)
def test_a_token_opens_what_its_scope_says() -> None:
    from asgiref.sync import async_to_sync

    scraper, token = Scraper(full().image), made(TokenScope.METRICS)
    ask = async_to_sync(scraper.ask)
    assert ask(bearer(token), client=("10.0.0.7", 1)).status == 200
    assert ask({"authorization": f"bEaReR  {token} "}, client=("10.0.0.7", 1)).status == 200
    others = tokens.make("others", frozenset(set(TokenScope) - {TokenScope.METRICS}), 1, None)[1]
    answer = ask(bearer(others))
    assert (answer.status, b"unstall_" in answer.body) == (403, False)
    assert MachineToken.objects.get(name="prometheus").last_used_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_token_is_looked_up_once_in_a_while_and_refused_soon_after_it_was_revoked(
    django_assert_num_queries: Any,
) -> None:
    from asgiref.sync import async_to_sync

    scraper, token = Scraper(full().image), made(TokenScope.METRICS)
    ask = async_to_sync(scraper.ask)
    assert ask(bearer(token)).status == 200
    with django_assert_num_queries(0):
        assert [ask(bearer(token)).status for _ in range(20)] == [200] * 20
    tokens.revoke(MachineToken.objects.get(name="prometheus"))
    scraper.clock += token_cache.KEPT_SECONDS + 1
    refused = ask(bearer(token))
    assert refused.status == 401
    assert b"revoked" in refused.body


@pytest.mark.django_db(transaction=True)
def test_a_token_ends_when_it_expires_though_it_is_remembered() -> None:
    from asgiref.sync import async_to_sync

    scraper, token = Scraper(full().image), made(TokenScope.METRICS)
    MachineToken.objects.update(expires_at=timezone.now() + timedelta(seconds=9))
    ask = async_to_sync(scraper.ask)
    assert ask(bearer(token)).status == 200
    MachineToken.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    scraper.clock += 10
    assert ask(bearer(token)).status == 401


@pytest.mark.django_db(transaction=True)
def test_while_the_database_is_away_known_tokens_count_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    from asgiref.sync import async_to_sync

    def dead(_: str) -> None:
        raise OperationalError("connection to 10.0.0.2 refused")

    scraper, token, other = Scraper(full().image), made(TokenScope.METRICS), "unstall_" + "y" * 40
    ask = async_to_sync(scraper.ask)
    assert ask(bearer(token)).status == 200
    assert ask(bearer(other)).status == 401
    monkeypatch.setattr(tokens, "find", dead)
    scraper.clock += token_cache.KEPT_SECONDS + 1
    assert ask(bearer(token)).status == 200
    unknown = ask(bearer(other))
    assert (unknown.status, b"10.0.0.2" in unknown.body) == (503, False)
    scraper.clock += token_cache.GRACE_SECONDS
    assert ask(bearer(token)).status == 503


@pytest.mark.usefixtures("open_on_loopback")
async def test_a_token_in_an_address_is_refused_before_it_is_looked_up(scraper: Scraper) -> None:
    answer = await scraper.ask(query="token=unstall_" + "z" * 40)
    assert answer.status == 400
    assert b"unstall_zzz" not in answer.body


@pytest.mark.django_db(transaction=True)
def test_wrong_tokens_without_end_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from asgiref.sync import async_to_sync

    monkeypatch.setattr(token_cache, "REMEMBERED", 20)
    scraper, token = Scraper(full().image), made(TokenScope.METRICS)
    ask = async_to_sync(scraper.ask)
    for number in range(60):
        assert ask(bearer(f"unstall_{number:040}")).status == 401
        scraper.clock += 1
    assert len(scraper.app._bearers._known) <= 20
    assert ask(bearer(token)).status == 200


@pytest.mark.django_db(transaction=True)
def test_wrong_tokens_push_out_none_that_is_valid(
    monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    """Nobody needs a token to send made-up ones."""
    from asgiref.sync import async_to_sync

    monkeypatch.setattr(token_cache, "REMEMBERED", 20)
    scraper, token = Scraper(full().image), made(TokenScope.METRICS)
    ask = async_to_sync(scraper.ask)
    assert ask(bearer(token)).status == 200
    for number in range(60):
        assert ask(bearer(f"unstall_{number:040}")).status == 401
    with django_assert_num_queries(0):
        assert ask(bearer(token)).status == 200
    scraper.clock += token_cache.KEPT_SECONDS + 1
    monkeypatch.setattr(token_cache, "WAITING", 0)
    assert ask(bearer("unstall_" + "x" * 40)).status == 503
    assert ask(bearer(token)).status == 200, "one that was valid is looked up, however many others wait for that"
