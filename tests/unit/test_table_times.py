"""Times of job tables, however they are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from recovery.backends.shared.decode import LAST_MOMENT
from recovery.backends.sql import times
from recovery.backends.sql.catalogue import Kind

NOON = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC
NAIVE_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)
NAIVE_ONE = NAIVE_NOON + timedelta(hours=1)
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime(2026, 1, 1, 12, tzinfo=UTC), Kind.INSTANT),
        (NAIVE_NOON, Kind.INSTANT),
        (datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))), Kind.MOMENT),
        (NAIVE_ONE, Kind.MOMENT),
        (1_767_268_800, Kind.NUMBER),
        (1_767_268_800_000, Kind.NUMBER),
        (1_767_268_800_000_000, Kind.NUMBER),
        (1_767_268_800_000_000_000, Kind.NUMBER),
        (1_767_268_800.0, Kind.FRACTION),
        (Decimal("1767268800.000"), Kind.FRACTION),
        ("2026-01-01 13:00:00", Kind.TEXT),
        ("2026-01-01T13:00:00.000", Kind.TEXT),
        ("2026-01-01T12:00:00Z", Kind.TEXT),
        ("2026-01-01 12:00:00+00:00", Kind.TEXT),
        (b"2026-01-01 12:00:00+00:00", Kind.TEXT),
        ("1767268800", Kind.TEXT),
    ],
)
def test_one_moment_in_many_writings(value: Any, kind: Kind) -> None:
    assert times.read(value, kind, BERLIN) == NOON


@pytest.mark.parametrize(
    "value", [None, "", "soon", "0000-00-00 00:00:00", 0, -5, True, float("nan"), float("inf"), b"\xff"]
)
def test_what_is_no_time_is_unknown(value: Any) -> None:
    assert times.read(value, Kind.TEXT, "UTC") is None


def test_a_time_beyond_all_calendars_is_the_last_one() -> None:
    assert times.read(10**30, Kind.NUMBER, "UTC") == LAST_MOMENT


@pytest.mark.parametrize(
    ("kind", "beside", "written"),
    [
        (Kind.INSTANT, [], datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (Kind.MOMENT, [], NAIVE_ONE),
        (Kind.NUMBER, [None], 1_767_268_800),
        (Kind.NUMBER, [None, 1_767_000_000_123], NOON),
        (Kind.FRACTION, [1_767_000_000.5], 1_767_268_800.0),
        (Kind.TEXT, [], "2026-01-01 13:00:00"),
        (Kind.TEXT, ["2025-12-31 08:00:00.5"], "2026-01-01 13:00:00.000"),
        (Kind.TEXT, ["2025-12-31T08:00:00Z"], "2026-01-01T12:00:00.000Z"),
        (Kind.TEXT, ["2025-12-31T08:00:00+01:00"], "2026-01-01T12:00:00.000+00:00"),
        (Kind.TEXT, [1_767_000_000], 1_767_268_800),
    ],
)
def test_a_time_is_written_like_the_others_of_its_row(kind: Kind, beside: list[Any], written: Any) -> None:
    found = times.written(NOON, kind, BERLIN, beside)
    assert (found, type(found)) == (written, type(written))


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Asia/Kolkata"])
def test_what_is_written_reads_the_same(kind: Kind, zone: str) -> None:
    assert times.read(times.written(NOON, kind, zone, []), kind, zone) == NOON
