"""Whatever a Loki, or what stands in front of it, answers when it does not answer well: told, with what to do."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LOKI, LogSource
from recovery.domain.logs.types import LogQuery
from recovery.errors import (
    AccessDenied,
    Garbled,
    NotReady,
    StatementRefused,
    StoreError,
    TimedOut,
    TlsMismatch,
    Unreachable,
)
from recovery.logs.loki import LokiSource
from recovery.logs.loki import client as loki_client
from tests.support.logs.loki_double import HANG, RESET, Answer, LokiDouble

OF_MAIL = LogQuery(labels=(("app", frozenset(("mail",))),))
TEXT = {"Content-Type": "text/plain; charset=utf-8"}


@pytest.fixture
def double() -> Iterator[LokiDouble]:
    with LokiDouble() as running:
        yield running


@pytest.fixture
async def source(double: LokiDouble) -> AsyncIterator[LokiSource]:
    made = make(double.url)
    yield made
    await made.close()


def make(url: str, *, timeout: float = 10.0, tenant: str = "", **of_endpoint: str) -> LokiSource:
    return LokiSource(LogSource("loki", "Loki", LOKI, HttpEndpoint(url, **of_endpoint), tenant=tenant, timeout=timeout))


async def failure(source: LokiSource) -> StoreError:
    """What a search ends with; it is put together well in any case."""
    with pytest.raises(StoreError) as caught:
        await source.search(recent())
    error = caught.value
    assert error.reason
    assert error.advice
    assert "redis" not in error.advice.lower()
    assert "\n" not in str(error)
    return error


def recent() -> LogQuery:
    return LogQuery(OF_MAIL.labels, start=time.time_ns() - 60 * 10**9)


def said(status: int, text: str, **headers: str) -> Answer:
    return status, {**TEXT, **headers}, text.encode()


def streams(*entries: Any, **more: Any) -> Answer:
    found = {"resultType": "streams", "result": list(entries), **more}
    return 200, {}, json.dumps({"status": "success", "data": found}).encode()


REFUSALS: list[tuple[Answer, type[StoreError], str, str]] = [
    (said(400, "parse error at line 1, col 9: syntax error"), StatementRefused, "col 9: syntax", "match"),
    (said(400, "the query would read too many bytes (query: 2 TB, limit: 1 TB)"), StatementRefused, "2 TB", "shorter"),
    (said(401, "no org id"), AccessDenied, "no org id", "tenant"),
    (said(401, "<html>Authorization Required</html>"), AccessDenied, "401 Unauthorized", "token_file"),
    (said(403, "token=Zqverysecret1234"), AccessDenied, "403 Forbidden", "token_file"),
    (said(404, "404 page not found"), Garbled, "404 Not Found", "/loki/api/v1"),
    (said(414, "too long"), Garbled, "414", "fewer values"),
    (said(418, "short and stout"), Garbled, "short and stout", "Loki"),
    (said(302, "", Location="http://elsewhere/"), Garbled, "302 Found", "Loki"),
    (said(429, "too many outstanding requests"), NotReady, "too many outstanding", "automatically"),
    (said(500, "rpc error: code = Unknown desc = broken"), NotReady, "desc = broken", "own log"),
    (said(500, "context deadline exceeded"), TimedOut, "deadline", "shorter time"),
    (said(500, json.dumps({"message": "in\x00side", "code": 500})), NotReady, "in side", "own log"),
    (said(503, "Ingester not ready: waiting"), NotReady, "Ingester not ready", "automatically"),
    (said(504, "context deadline exceeded"), TimedOut, "504 Gateway Timeout", "shorter time"),
    (said(599, "?"), NotReady, "599", "own log"),
    (said(200, ""), Garbled, "like a Loki", "Loki"),
    (said(200, "<html>Log in</html>"), Garbled, "like a Loki", "Loki"),
    (said(200, '{"status": "success"}'), Garbled, "like a Loki", "Loki"),
    (said(200, '{"status": "error", "data": {}}'), Garbled, "like a Loki", "Loki"),
    (said(200, "[" * 100_000), Garbled, "like a Loki", "Loki"),
    (streams({"stream": {}, "values": [["soon", "x"]]}), Garbled, "like a Loki", "Loki"),
    (streams({"stream": {}, "values": [["-1", "x"]]}), Garbled, "like a Loki", "Loki"),
    (streams({"stream": [], "values": [["1", "x"]]}), Garbled, "like a Loki", "Loki"),
    (streams(resultType="matrix"), Garbled, "like a Loki", "Loki"),
    (RESET, Unreachable, "closed the connection", "running"),
]


@pytest.mark.parametrize("number", range(len(REFUSALS)))
async def test_a_refusal_is_told_with_what_to_do_and_it_goes_on(
    double: LokiDouble, source: LokiSource, number: int
) -> None:
    answer, kind, reason, advice = REFUSALS[number]
    double.push({"app": "mail"}, (time.time_ns() - 2 * 10**9, "here"))
    double.answers = [answer] * 9  # what was too much is asked for in parts
    error = await failure(source)
    double.answers = []
    assert isinstance(error, kind)
    assert reason in error.reason
    assert advice in error.advice
    assert "Zqverysecret" not in str(error)
    page = await source.search(recent())
    assert [line.text for line in page.lines] == ["here"]


@pytest.mark.parametrize(
    "wait", ["30", formatdate(time.time() + 3600, usegmt=True), "86400"], ids=["seconds", "moment", "a day"]
)
async def test_whoever_asks_for_patience_is_not_asked_meanwhile(
    double: LokiDouble, source: LokiSource, wait: str
) -> None:
    double.answers = [said(429, "too many requests", **{"Retry-After": wait})]
    assert "429 Too Many Requests" in (await failure(source)).reason
    error = await failure(source)
    assert "next query in" in error.reason
    assert int(error.reason.split(" s")[0].rpartition(" ")[2]) <= 60
    assert len(double.asked) == 1


@pytest.mark.parametrize("wait", ["", "0", "soon", formatdate(0), "-5", "\u0665"])
async def test_whoever_names_no_time_is_asked_again_at_once(double: LokiDouble, source: LokiSource, wait: str) -> None:
    headers = {"Retry-After": wait} if wait.isascii() else {}
    double.answers = [said(503, "starting", **headers)]
    await failure(source)
    await source.search(recent())


async def test_whoever_is_slow_is_given_up_and_asked_for_less(double: LokiDouble) -> None:
    source = make(double.url, timeout=0.5)
    try:
        double.answers = [HANG] * 20
        error = await failure(source)
        assert isinstance(error, TimedOut)
        assert "within 0.5 s" in error.reason
    finally:
        double.released.set()
        await source.close()


async def test_nobody_there_is_told() -> None:
    source = make("http://127.0.0.1:1")
    assert isinstance(await failure(source), Unreachable)
    await source.close()


async def test_a_tenant_that_is_missing_is_asked_for(double: LokiDouble) -> None:
    double.tenant = "team-a"
    for tenant in ("", "team-b"):
        source = make(double.url, tenant=tenant)
        error = await failure(source)
        assert isinstance(error, AccessDenied)
        assert "tenant" in error.advice
        await source.close()


async def test_a_login_and_a_token_are_sent_as_they_are(double: LokiDouble) -> None:
    for endpoint, sent in (
        ({"token": "open sesame"}, "Bearer open sesame"),
        ({"username": "me", "password": "x:y"}, "Basic bWU6eDp5"),
    ):
        source = make(double.url, tenant="team-a", **endpoint)
        await source.search(recent())
        headers = double.asked[-1].headers
        assert (headers["authorization"], headers["x-scope-orgid"]) == (sent, "team-a")
        await source.close()


async def test_whom_to_trust_is_configured(certificates: Path) -> None:
    with LokiDouble(tls=certificates) as double:
        now = time.time_ns()
        double.push({"app": "mail"}, (now - 2 * 10**9, "safe"))
        strange, plain = make(double.url), make(double.url.replace("https", "http"))
        assert isinstance(await failure(strange), TlsMismatch)
        assert isinstance(await failure(plain), StoreError)
        known = make(double.url, ca=str(certificates / "ca.crt"))
        page = await known.search(LogQuery(OF_MAIL.labels, start=now - 60 * 10**9))
        assert [line.text for line in page.lines] == ["safe"]
        for source in (strange, plain, known):
            await source.close()


async def test_an_answer_that_is_too_large_is_asked_for_in_parts(
    double: LokiDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loki_client, "LARGEST", 128 * 1024)
    source, now, size = make(double.url), time.time_ns(), 20 * 1024
    double.push({"app": "mail"}, *((now - 2 * 10**9 + number, f"{number} " + "x" * size) for number in range(12)))
    query = LogQuery(OF_MAIL.labels, start=now - 60 * 10**9)
    page = await source.search(query)
    lines = list(page.lines)
    while page.before:
        page = await source.search(query, before=page.before)
        lines = [*page.lines, *lines]
    assert [line.text.partition(" ")[0] for line in lines] == [str(number) for number in range(12)]
    assert all(line.left_out > 0 for line in lines)
    await source.close()


async def test_a_stream_that_is_odd_is_shown_as_text(double: LokiDouble, source: LokiSource) -> None:
    """Halves of characters, markup, control characters, and labels of all kinds."""
    at = time.time_ns() - 2 * 10**9
    double.answers = [
        streams({"stream": {"app": "mail", "a\ud800": "<b>"}, "values": [[str(at), "<i>\ud800\x00\r\nx", {}]]})
    ]
    page = await source.search(LogQuery(OF_MAIL.labels, start=at - 1))
    assert [line.text for line in page.lines] == ["<i>?\u2400\u240d\u240ax"]
    assert page.lines[0].labels == {"app": "mail", "a?": "<b>"}
