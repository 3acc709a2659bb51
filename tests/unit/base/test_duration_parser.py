"""Spans of time as people write them."""

from __future__ import annotations

import pytest

from recovery.domain.duration_parser import format_duration, parse_duration


@pytest.mark.parametrize(
    ("said", "ms"),
    [
        ("30s", 30_000),
        ("30", 30_000),
        ("500ms", 500),
        (" 1.5 MIN ", 90_000),
        ("2m", 120_000),
        ("1h", 3_600_000),
        ("0.25s", 250),
        ("0", 0),
    ],
)
def test_a_span_is_read_in_milliseconds(said: str, ms: int) -> None:
    assert parse_duration(said) == ms


@pytest.mark.parametrize("said", ["", "s", "-1s", "1x", "1e9", "nan", "1 s s", "٣s", "1" * 20, "1s\x00", "<b>"])
def test_what_is_no_span_is_refused_with_what_would_be_right(said: str) -> None:
    with pytest.raises(ValueError, match="30s"):
        parse_duration(said)


@pytest.mark.parametrize("ms", [0, 1, 999, 1000, 1500, 60_000, 90_000, 3_600_000, 5_400_000])
def test_what_is_written_is_read_back(ms: int) -> None:
    assert parse_duration(format_duration(ms)) == ms
