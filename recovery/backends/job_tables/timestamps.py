"""Reads and writes times as job tables keep them: with a zone or without, as numbers, as texts. Here: ms since 1970."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

from recovery.backends.job_tables.introspection import ColumnKind
from recovery.backends.redis_common.decode import LAST_MOMENT
from recovery.config import Engine
from recovery.stores.sql.database_clock import CLOCK

# Seconds until the year 5138, then ms, µs and ns: no jobs are so old or so new that these overlap.
_UNITS = ((1e11, 1000.0), (1e14, 1.0), (1e17, 1e-3), (math.inf, 1e-6))


def clock(engine: Engine) -> str:
    """Returns SQL for the database's own clock: leases are compared with it, and with no other."""
    return CLOCK[engine.value]


def select_time(engine: Engine, column: str, kind: ColumnKind) -> str:
    """Returns SQL that selects a column of times.

    PostgreSQL's `infinity` fits no calendar, so it is the last day there is. And whichever zone a connection has, a
    time with a zone comes in UTC.
    """
    if engine is not Engine.POSTGRESQL or kind not in (ColumnKind.INSTANT, ColumnKind.MOMENT):
        return column
    type_ = "timestamptz" if kind is ColumnKind.INSTANT else "timestamp"
    bounded = (
        f"CASE WHEN {column} > {type_} '9999-12-30' THEN {type_} '9999-12-30'"
        f" WHEN {column} < {type_} '0001-01-03' THEN {type_} '0001-01-03' ELSE {column} END"
    )
    return f"({bounded}) AT TIME ZONE 'UTC'" if kind is ColumnKind.INSTANT else bounded


def read(value: Any, kind: ColumnKind, zone: str) -> int | None:
    """Returns the time; None for nothing, and for what is no time."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, datetime):
        return _of_datetime(value, UTC if kind is ColumnKind.INSTANT else ZoneInfo(zone))
    if isinstance(value, (int, float, Decimal)):
        return _of_number(float(value))
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value).decode("utf-8", "replace")
    written = str(value).strip()
    try:
        return _of_datetime(datetime.fromisoformat(written), ZoneInfo(zone))
    except ValueError:
        pass
    try:
        return _of_number(float(written))
    except ValueError:
        return None


def write_now(now: int, kind: ColumnKind, zone: str, beside: Iterable[Any]) -> Any:
    """Returns this moment as it is written into a column of this kind.

    Where a type does not tell how, it is written like the first time that the row has in another column.
    """
    moment = datetime.fromtimestamp(now / 1000, UTC)
    if kind is ColumnKind.INSTANT:
        return moment
    local = moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    if kind is ColumnKind.MOMENT:
        return local
    example = next((value for value in beside if value is not None and not isinstance(value, datetime)), None)
    if kind in (ColumnKind.NUMBER, ColumnKind.FRACTION) or isinstance(example, (int, float, Decimal)):
        return _number(now, kind, example)
    return _text(moment, local, str(example or ""))


def _of_datetime(value: datetime, zone: Any) -> int | None:
    aware = value if value.tzinfo else value.replace(tzinfo=zone)
    try:
        return _within(round(aware.timestamp() * 1000))
    except (OverflowError, ValueError):
        return None


def _of_number(number: float) -> int | None:
    if math.isnan(number) or math.isinf(number):
        return None
    factor = next(factor for limit, factor in _UNITS if abs(number) < limit)
    return _within(round(number * factor))


def _within(ms: int) -> int | None:
    """Returns the time with an upper bound; None for 0 or before: such a time was never set."""
    return min(ms, LAST_MOMENT) if ms > 0 else None


def _number(now: int, kind: ColumnKind, example: Any) -> int | float:
    """Returns the time in seconds, unless another time of the row is so long that it cannot be."""
    size = abs(float(example)) if isinstance(example, (int, float, Decimal)) else 0.0
    factor = next(factor for limit, factor in _UNITS if size < limit)
    exact = now / factor
    return exact if kind is ColumnKind.FRACTION else int(exact)


def _text(moment: datetime, local: datetime, example: str) -> str:
    between = "T" if "T" in example else " "
    if example.endswith("Z"):
        return moment.replace(tzinfo=None).isoformat(between, "milliseconds") + "Z"
    if "+" in example[10:] or "-" in example[10:]:
        return moment.isoformat(between, "milliseconds")
    return local.isoformat(between, "milliseconds" if "." in example else "seconds")
