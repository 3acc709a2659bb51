from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dashboard.templatetags import show


@pytest.mark.parametrize("filter", [show.grouped, show.duration, show.bytes, show.ago, show.exactly])
def test_what_nobody_knows_is_never_a_number(filter: object) -> None:
    assert filter(None) == "unknown"  # type: ignore[operator]
    assert filter("") == "unknown"  # type: ignore[operator]


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "0 ms"),
        (850, "850 ms"),
        (1200, "1.2 s"),
        (3000, "3 s"),
        (41_200, "41 s"),
        (112_000, "1 min 52 s"),
        (120_000, "2 min"),
        (11_100_000, "3 h 5 min"),
        (90_000_000, "1 d 1 h"),
    ],
)
def test_a_duration_reads_as_a_person_says_it(milliseconds: int, text: str) -> None:
    assert show.duration(milliseconds) == text


@pytest.mark.parametrize(("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KB"), (5 * 1024**2, "5.0 MB")])
def test_a_size_has_its_unit(size: int, text: str) -> None:
    assert show.bytes(size) == text


def test_large_numbers_are_grouped() -> None:
    assert show.grouped(1234567) == "1,234,567"
    assert show.grouped(0) == "0"


def test_an_age_carries_the_exact_time_for_the_hover_and_for_the_script() -> None:
    moment = datetime.now(UTC) - timedelta(seconds=125)
    markup = show.ago(moment)
    assert ">2 min ago</time>" in markup
    assert f'data-ts="{int(moment.timestamp() * 1000)}"' in markup
    assert f'title="{moment:%Y-%m-%d %H:%M:%S} UTC"' in markup


def test_a_time_to_come_is_said_so() -> None:
    assert "in 59 min" in show.ago(datetime.now(UTC) + timedelta(minutes=59, seconds=30))


def test_a_number_that_is_no_time_breaks_nothing() -> None:
    assert show.ago(10**18) == f"at {10**18}"
    assert show.exactly(-(10**18)) == f"at {-(10**18)}"


def test_a_name_cannot_disguise_itself() -> None:
    assert show.shown("a\r\nb\u202e") == "a␍␊b\ufffd"
