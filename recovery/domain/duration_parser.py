"""Parses durations as people write them: `30s`, `500ms`, `1.5min`, `2h`; a number alone is seconds."""

from __future__ import annotations

import re

from recovery.domain.time_units import HOUR, MINUTE, SECOND

_WRITTEN = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(ms|s|sec|m|min|h)?", re.ASCII)
_UNITS = {"ms": 1, "s": SECOND, "sec": SECOND, "m": MINUTE, "min": MINUTE, "h": HOUR}


def parse_duration(written: str) -> int:
    """Parses a duration into milliseconds; raises ValueError."""
    found = _WRITTEN.fullmatch(written.strip().lower())
    if found is None:
        raise ValueError("Write a time as 500ms, 30s, 2min or 1h.")
    number, unit = found.groups()
    return round(float(number) * _UNITS[unit or "s"])


def format_duration(ms: int) -> str:
    """Writes a duration, the inverse of `span`, in the largest unit that leaves it whole."""
    for unit in ("h", "min", "s"):
        if ms and ms % _UNITS[unit] == 0:
            return f"{ms // _UNITS[unit]}{unit}"
    return f"{ms}ms" if ms else "0s"
