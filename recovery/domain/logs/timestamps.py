"""Determines when a line was written: by its own timestamp when it begins with one, else when it was read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache

AHEAD = 60 * 1_000_000_000  # ns that a line may be ahead of us: more is a wrong clock, or no time at all
STACK_TRACE_LIMIT = 200  # lines of the longest trace that is taken for one
_LOOKED_AT = 400  # bytes of a line of JSON in which its time is looked for
_SECOND = 1_000_000_000
_ISO = rb"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d):(\d\d)(?:[.,](\d{1,9}))?\d* ?(Z|[+-]\d\d:?\d\d)?"
_FIRST = re.compile(rb"(?:\x1b\[[0-9;]*m)*\[?" + _ISO)
_NAMED = re.compile(rb'"(?:time|ts|timestamp|@timestamp)"\s*:\s*(?:"' + _ISO + rb'"|(\d{10,19})(?:\.(\d{1,9}))?\b)')


@dataclass(slots=True)
class LineClock:
    """Clock of one file. Time never goes back in it; a line without a timestamp gets that of the last line with one, as
    lines of a stack trace belong to it.
    """

    last: int = 0  # the moment of the line before, in ns
    plain: int = STACK_TRACE_LIMIT  # lines without a timestamp since the last one with it

    def read(self, line: bytes, now: int) -> int:
        """Returns the moment of a line in ns. `now` is when it was read, in ns."""
        at = line_timestamp(line)
        if at is not None and at <= now + AHEAD:
            self.plain = 0
        else:
            self.plain += 1
            at = now if self.plain > STACK_TRACE_LIMIT else self.last
        self.last = max(self.last, at)
        return self.last

    def told(self, at: int | None, now: int) -> int:
        """Returns a moment that stands beside the line; `now` if none does, or if it is too far in the future."""
        self.last = max(self.last, now if at is None or at > now + AHEAD else at)
        return self.last


def line_timestamp(line: bytes) -> int | None:
    """Returns the line's own timestamp in ns, or None."""
    first = line[:1]
    if first == b"{":
        found = _NAMED.search(line, 0, _LOOKED_AT)
        if found is None:
            return None
        return _counted(found[5], found[6]) if found[5] else _written(found[1], found[2], found[3], found[4])
    if first.isdigit() or first in (b"[", b"\x1b"):
        found = _FIRST.match(line)
        return _written(found[1], found[2], found[3], found[4]) if found else None
    return None


def _written(minute: bytes, second: bytes, fraction: bytes | None, zone: bytes | None) -> int | None:
    start = _minute(minute, zone or b"")
    if start is None:
        return None
    return start + int(second) * _SECOND + (int(fraction.ljust(9, b"0")) if fraction else 0)


@lru_cache(maxsize=256)
def _minute(written: bytes, zone: bytes) -> int | None:
    """Returns the start of a minute in ns; many lines share one. Without a zone it is the server's own."""
    try:
        at = datetime.fromisoformat(written.decode())
        return int(at.replace(tzinfo=_zone(zone)).timestamp()) * _SECOND
    except (ValueError, OverflowError, OSError):
        return None


def _zone(written: bytes) -> timezone | None:
    if not written:
        return None
    if written == b"Z":
        return UTC
    digits = written[1:].replace(b":", b"")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return timezone(-offset if written[:1] == b"-" else offset)


def _counted(whole: bytes, fraction: bytes | None) -> int | None:
    """Returns ns from a time since 1970 in seconds, ms, µs or ns: the number of digits tells the unit."""
    unit = {10: 9, 13: 6, 16: 3, 19: 0}.get(len(whole))
    if unit is None:
        return None
    rest = int(fraction[:unit].ljust(unit, b"0")) if fraction and unit else 0
    return int(whole) * int(10**unit) + rest
