"""The address of /logs: a link always opens, and what it asks for stands in it again."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from dashboard.logs.query import AHEAD, LABELS, SOURCES, LogPageQuery
from recovery.config.logs import LogSource
from recovery.domain.logs.types import TERM_LIMIT, TERMS_LIMIT, LogLevel
from recovery.domain.time_units import HOUR

KNOWN = tuple(LogSource(name, name, "files") for name in ("servers", "loki", "a", "b", "c", "d"))
NOW = 1_800_000_000_000
MS = 1_000_000
FIELDS = ("source", "label", "include", "exclude", "level", "range", "from", "to", "line", "other")
ODD = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["loki", "live", "own", "1h", "error", "0", "9" * 40, "a=b", "=", "2026-11-19T01:00", "²", "-1"]),
)


def asked(query: str) -> LogPageQuery:
    return LogPageQuery.of(QueryDict(query), KNOWN)


@given(st.lists(st.tuples(st.sampled_from(FIELDS), ODD), max_size=12))
def test_any_address_opens_and_says_itself_again(pairs: list[tuple[str, str]]) -> None:
    found = asked(urlencode(pairs))
    assert asked(found.address()) == found
    start, end = found.moments(NOW)
    assert start < end or found.end == 0
    found.query(NOW)
    assert isinstance(found.from_utc + found.to_utc, str)


def test_all_that_is_understood_is_asked_for() -> None:
    pairs = [
        ("source", "loki"),
        ("label", "app=mail"),
        ("label", "app=web"),
        ("label", "host=eu=1"),
        ("level", "error"),
    ]
    found = asked(urlencode([*pairs, ("include", "ECONN"), ("exclude", "retry"), ("range", "6h"), ("line", "1-2.3")]))
    query = found.query(NOW)
    assert found.sources == ("loki",)
    assert dict(query.labels) == {"app": {"mail", "web"}, "host": {"eu=1"}}
    assert (query.include, query.exclude, query.levels) == (("ECONN",), ("retry",), {LogLevel.ERROR})
    assert (query.start, query.end) == ((NOW - 6 * HOUR) * MS, (NOW + AHEAD) * MS)
    assert found.line == "1-2.3"


@pytest.mark.parametrize(
    "query",
    [
        "source=nobody&level=loud&range=year&line=%0A&label=no-value&label==x",
        f"include={'x' * (TERM_LIMIT + 1)}&line={'1' * 300}&range=",
        "from=yesterday&to=%C2%B2%C2%B2",
    ],
)
def test_what_is_not_understood_is_left_out(query: str) -> None:
    assert asked(query) == LogPageQuery()


def test_what_is_too_much_is_cut() -> None:
    sources = "&".join(f"source={one.name}" for one in KNOWN)
    found = asked(f"{sources}&{'&'.join(f'include={n}&exclude=x{n}&label=a%3D{n}' for n in range(300))}")
    assert (len(found.sources), len(found.labels)) == (SOURCES, LABELS)
    assert len(found.include) == len(found.exclude) == TERMS_LIMIT


def test_moments_come_as_numbers_and_as_a_form_without_scripts_sends_them() -> None:
    assert asked("from=1000&to=2000").moments(NOW) == (1000, 2000)
    assert asked("from=2026-11-19T01:00&to=2026-11-19T02:00").moments(NOW) == (1_795_050_000_000, 1_795_053_600_000)
    assert asked("from=2026-11-19T01:00:00%2B01:00").start == 1_795_046_400_000


def test_a_range_of_ones_own_wins_over_a_length() -> None:
    assert asked("range=1h&from=1000&to=2000").moments(NOW) == (1000, 2000)


def test_a_range_with_one_end_has_the_other() -> None:
    assert asked("from=1000").moments(NOW) == (1000, NOW)
    assert asked(f"to={NOW - HOUR}").moments(NOW) == (NOW - 2 * HOUR, NOW - HOUR)
    assert asked("from=3000&to=2000").moments(NOW) == (0, 2000), "the wrong way round"


def test_live_is_the_last_hour_for_whoever_asks_once() -> None:
    assert asked("").is_live
    assert asked("").moments(NOW) == (NOW - HOUR, NOW)
    assert asked("").address() == ""
