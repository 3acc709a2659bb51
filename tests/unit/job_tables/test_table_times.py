"""Times of job tables, however they are kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest

from recovery.backends.job_tables import timestamps
from recovery.backends.job_tables.introspection import ColumnKind
from recovery.backends.redis_common.decode import LAST_MOMENT

NOON = 1_767_268_800_000  # 2026-01-01 12:00:00 UTC
NAIVE_NOON = datetime(2026, 1, 1, 12, tzinfo=UTC).replace(tzinfo=None)
NAIVE_ONE = NAIVE_NOON + timedelta(hours=1)
BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (datetime(2026, 1, 1, 12, tzinfo=UTC), ColumnKind.INSTANT),
        (NAIVE_NOON, ColumnKind.INSTANT),
        (datetime(2026, 1, 1, 13, tzinfo=timezone(timedelta(hours=1))), ColumnKind.MOMENT),
        (NAIVE_ONE, ColumnKind.MOMENT),
        (1_767_268_800, ColumnKind.NUMBER),
        (1_767_268_800_000, ColumnKind.NUMBER),
        (1_767_268_800_000_000, ColumnKind.NUMBER),
        (1_767_268_800_000_000_000, ColumnKind.NUMBER),
        (1_767_268_800.0, ColumnKind.FRACTION),
        (Decimal("1767268800.000"), ColumnKind.FRACTION),
        ("2026-01-01 13:00:00", ColumnKind.TEXT),
        ("2026-01-01T13:00:00.000", ColumnKind.TEXT),
        ("2026-01-01T12:00:00Z", ColumnKind.TEXT),
        ("2026-01-01 12:00:00+00:00", ColumnKind.TEXT),
        (b"2026-01-01 12:00:00+00:00", ColumnKind.TEXT),
        ("1767268800", ColumnKind.TEXT),
    ],
)
def test_one_moment_in_many_writings(value: Any, kind: ColumnKind) -> None:
    assert timestamps.read(value, kind, BERLIN) == NOON


@pytest.mark.parametrize(
    "value", [None, "", "soon", "0000-00-00 00:00:00", 0, -5, True, float("nan"), float("inf"), b"\xff"]
)
def test_what_is_no_time_is_unknown(value: Any) -> None:
    assert timestamps.read(value, ColumnKind.TEXT, "UTC") is None


def test_a_time_beyond_all_calendars_is_the_last_one() -> None:
    assert timestamps.read(10**30, ColumnKind.NUMBER, "UTC") == LAST_MOMENT


@pytest.mark.parametrize(
    ("kind", "beside", "written"),
    [
        (ColumnKind.INSTANT, [], datetime(2026, 1, 1, 12, tzinfo=UTC)),
        (ColumnKind.MOMENT, [], NAIVE_ONE),
        (ColumnKind.NUMBER, [None], 1_767_268_800),
        (ColumnKind.NUMBER, [None, 1_767_000_000_123], NOON),
        (ColumnKind.FRACTION, [1_767_000_000.5], 1_767_268_800.0),
        (ColumnKind.TEXT, [], "2026-01-01 13:00:00"),
        (ColumnKind.TEXT, ["2025-12-31 08:00:00.5"], "2026-01-01 13:00:00.000"),
        (ColumnKind.TEXT, ["2025-12-31T08:00:00Z"], "2026-01-01T12:00:00.000Z"),
        (ColumnKind.TEXT, ["2025-12-31T08:00:00+01:00"], "2026-01-01T12:00:00.000+00:00"),
        (ColumnKind.TEXT, [1_767_000_000], 1_767_268_800),
    ],
)
def test_a_time_is_written_like_the_others_of_its_row(kind: ColumnKind, beside: list[Any], written: Any) -> None:
    found = timestamps.write_now(NOON, kind, BERLIN, beside)
    assert (found, type(found)) == (written, type(written))


@pytest.mark.parametrize("kind", list(ColumnKind))
@pytest.mark.parametrize("zone", ["UTC", BERLIN, "Asia/Kolkata"])
def test_what_is_written_reads_the_same(kind: ColumnKind, zone: str) -> None:
    assert timestamps.read(timestamps.write_now(NOON, kind, zone, []), kind, zone) == NOON
