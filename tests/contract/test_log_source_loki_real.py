"""The contract of sources with a real Loki; and what the stand-in says of one, asked of it (`make test-all`)."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import count

import pytest

from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.config.logs import LOKI, LogSource
from recovery.domain.logs.types import LogQuery
from recovery.errors import AccessDenied
from recovery.logs.loki import LokiSource
from recovery.logs.loki.client import LokiClient
from tests.contract.log_source import Bench, LogSourceContract, Raw
from tests.support.logs.loki_double import LokiDouble
from tests.support.logs.loki_real import PROGRAM, RealLoki

pytestmark = pytest.mark.loki

MAIL = {"app": "mail", "container": "mail-1"}
MINUTE = 60 * 10**9
_NUMBERS = count()


@pytest.fixture(scope="module")
def loki() -> Iterator[RealLoki]:
    if not os.environ.get(PROGRAM):
        pytest.skip(f"{PROGRAM} says of no Loki where it is; `make test-all` builds one")
    with RealLoki() as running:
        yield running


@pytest.fixture
def tenant() -> str:
    """One of its own for each test."""
    return f"test-{next(_NUMBERS)}"


def spec(url: str, tenant: str) -> LogSource:
    return LogSource("loki", "Loki", LOKI, HttpEndpoint(url), tenant=tenant, timeout=30)


class RealBench(Bench):
    label = "container"
    values = ("mail-1", "mail-2")
    keeps_traces = False

    def __init__(self, loki: RealLoki, tenant: str) -> None:
        super().__init__()
        self._loki, self._tenant = loki, tenant

    async def write(self, lines: Sequence[Raw], origin: int = 0) -> None:
        self._loki.push(self._tenant, {"app": "mail", self.label: self.values[origin]}, lines)

    async def forget(self) -> None:
        self._loki.forget()

    def make(self) -> LokiSource:
        return LokiSource(spec(self._loki.url, self._tenant), settled=0)


class TestRealLoki(LogSourceContract):
    @pytest.fixture
    async def bench(self, loki: RealLoki, tenant: str) -> AsyncIterator[Bench]:
        bench = RealBench(loki, tenant)
        yield bench
        await bench.close()


# -- what the stand-in says of it


@pytest.mark.parametrize(
    ("path", "params"),
    [
        ("query_range", {"query": '{app="mail"}', "limit": "5001"}),
        ("query_range", {"query": "{}"}),
        ("query_range", {"query": '{app=~".*"}'}),
        ("query_range", {"query": '{app=""}'}),
        ("query_range", {"query": '{app="mail"', "limit": "10"}),
        ("query_range", {"query": '{app="mail"}', "start": "1700000000000000000", "end": "1800000000000000000"}),
        ("query_range", {"query": '{app="no such"}'}),
        ("query_range", {"query": '{nothing="mail"}'}),
        ("labels", {}),
        ("labels", {"query": '{app="no such"}'}),
        ("label/app/values", {}),
        ("label/nothing/values", {}),
        ("series", {}),
        ("series", {"match[]": '{app="mail"}'}),
        ("series", {"match[]": '{app="", container=""}'}),
        ("labels", {"query": '{app=""}'}),
        ("labels", {"start": "1"}),
        ("series", {"start": "1"}),
        ("query", {"query": 'sum(count_over_time({app="mail"}[1ns]))'}),
        ("query", {"query": 'sum(count_over_time({app="mail"}[1ms]))'}),
        ("nonsense", {}),
    ],
)
def test_it_answers_as_the_stand_in_does(loki: RealLoki, tenant: str, path: str, params: dict[str, str]) -> None:
    at = time.time_ns() - MINUTE
    loki.push(tenant, MAIL, [(at, "one"), (at + 1, "two")])
    real = loki.get(tenant, path, **params)
    with LokiDouble() as double:
        double.push(MAIL, (at, "one"), (at + 1, "two"))
        status, body = double.answer(f"/loki/api/v1/{path}", params, {})
    assert real.status_code == status, real.text
    if status != 200:
        words = {"limit", "range", "least", "syntax", "found"}
        assert words & set(real.text.replace(":", " ").split()) == words & set(body.decode().replace(":", " ").split())


def test_it_wants_a_tenant(loki: RealLoki) -> None:
    answer = loki.get("", "labels")
    assert (answer.status_code, answer.text) == (401, "no org id\n")


@pytest.mark.parametrize("is_backward", [False, True])
async def test_lines_of_one_moment_are_kept_once_and_are_counted(
    loki: RealLoki, tenant: str, is_backward: bool
) -> None:
    at = time.time_ns() - MINUTE
    texts = [f"line {number}" for number in range(50)]
    loki.push(tenant, MAIL, [(at, text) for text in (*texts, *texts[:5])])
    around = (at - 10**6 - 1, at - 10**6, at - 10**6, at - 10**6 + 1, at - 1, at + 1)
    loki.push(tenant, MAIL, [(moment, f"beside {number}") for number, moment in enumerate(around)])
    asking = LokiClient(spec(loki.url, tenant))
    found, is_cut = await asking.lines('{app="mail"}', at, at + 1, 100, is_backward=is_backward)
    assert (sorted(entry.text for entry in found), is_cut) == (sorted(texts), False)
    assert [entry.text for entry in found] != texts  # nobody may rely on their order
    assert await asking.count('{app="mail"}', at) == 50
    await asking.close()


# -- what only a real one can say


TRICKY = [
    '"',
    "\\",
    "`",
    "{}",
    "|=",
    "\n",
    "\r\t",
    "\x00",
    "\x7f",
    "é",
    "ß",
    "\ufeff",
    "\u2028",
    ".*",
    "(?i)",
    "$",
    "'a'",
]


@pytest.mark.parametrize("text", TRICKY)
async def test_whatever_is_written_is_plain_text_for_it_too(loki: RealLoki, tenant: str, text: str) -> None:
    at = time.time_ns() - MINUTE
    loki.push(tenant, MAIL, [(at, "neither"), (at + 1, f"it is {text} here")])
    source = LokiSource(spec(loki.url, tenant), settled=0)
    shown = (await source.search(LogQuery(start=at))).lines[-1].text[6:-5]
    page = await source.search(LogQuery(start=at, include=(shown,)))
    assert "neither" not in [line.text for line in page.lines]
    assert len(page.lines) == 1
    assert (await source.search(LogQuery(start=at, include=(shown + "~",)))).lines == []
    values = LogQuery((("app", frozenset((text, "mail"))), ("container", frozenset((text,)))), start=at)
    assert (await source.search(values)).lines == []
    await source.close()


async def test_of_more_lines_in_one_moment_it_is_said_how_many_are_missing(loki: RealLoki, tenant: str) -> None:
    at = time.time_ns() - MINUTE
    loki.push(tenant, MAIL, [(at, f"burst {number}") for number in range(5012)])
    source = LokiSource(spec(loki.url, tenant), settled=0)
    place, found, gaps = str(at - 1), [], []
    while True:
        page = await source.read(LogQuery(), after=place, limit=900)
        found += [line.text for line in page.lines]
        gaps += [page.gap.count] if page.gap else []
        place = page.after
        if page.is_end:
            break
    assert (len(found), len(set(found)), gaps) == (5000, 5000, [12])
    await source.close()


async def test_a_search_and_labels_of_all_times_are_no_error(loki: RealLoki, tenant: str) -> None:
    now = time.time_ns()
    loki.push(tenant, {**MAIL, "pod": "1"}, [(now - 150 * MINUTE, "old")])
    loki.push(tenant, MAIL, [(now - MINUTE, "new")])
    source, before, texts = LokiSource(spec(loki.url, tenant), settled=0), "", []
    while True:
        page = await source.search(LogQuery(), before=before)
        texts += [line.text for line in page.lines]
        before = page.before
        if not before:
            break
    assert sorted(texts) == ["new", "old"]
    assert (await source.labels(0, now)).values["app"] == ["mail"]
    await source.close()


async def test_without_a_tenant_it_is_asked_for(loki: RealLoki) -> None:
    source = LokiSource(spec(loki.url, ""), settled=0)
    with pytest.raises(AccessDenied) as caught:
        await source.search(LogQuery())
    assert "tenant" in caught.value.advice
    await source.close()
