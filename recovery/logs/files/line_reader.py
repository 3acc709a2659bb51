"""Reads lines of one open file with their times, forwards and backwards, in windows: any file size, little memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from recovery.domain.logs import stack_traces
from recovery.domain.logs.sanitize import JUDGED, LIMIT
from recovery.domain.logs.timestamps import AHEAD, STACK_TRACE_LIMIT, line_timestamp
from recovery.domain.logs.types import LogLevel
from recovery.logs.files.discovery import LogFile
from recovery.logs.files.safe_open import QUIET_NS

CHUNK = 256 * 1024
NEAR = LIMIT // 2  # bytes of a line to either side of an offset within it, that are judged together
PROBE = 64 * 1024  # bytes in which a timestamp is looked for
ROW_BYTES = 64  # of a line on average: of shorter ones fewer bytes are taken at once, for each line takes 200 in memory
SPARSE = 1024 * 1024  # bytes without any, behind which none is expected
UNENDED = 4 * 1024 * 1024  # a line that is still longer is taken in parts


class FileLine(NamedTuple):
    """Line: from where to where, its beginning, and how many bytes are not in it. `at` 0: not known yet. `level`: of
    the line it belongs to, if it is one of a trace.
    """

    start: int
    end: int
    raw: bytes
    more: int = 0
    at: int = 0
    level: LogLevel | None = None


def rows(file: int, start: int, stop: int) -> Iterator[FileLine]:
    """Yields lines from one offset to another; the last may lack its end."""
    position = begun = start
    head = b""
    while position < stop and (piece := os.pread(file, min(CHUNK, stop - position), position)):
        *whole, rest = piece.split(b"\n")
        end = position
        for part in whole:
            end += len(part) + 1
            yield _row(begun, end, head + part if head else part, end - 1 - begun)
            begun, head = end, b""
        if len(head) < JUDGED:
            head += rest[: JUDGED - len(head)]
        position += len(piece)
    if begun < position:
        yield _row(begun, position, head, position - begun)


def _row(start: int, end: int, raw: bytes, size: int) -> FileLine:
    kept = raw if len(raw) <= JUDGED else raw[:JUDGED]
    return FileLine(start, end, kept.lstrip(b"\0") if kept[:1] == b"\0" else kept, size - len(kept))


def line_start(file: int, low: int, high: int) -> int:
    """Returns the offset behind the last line feed before `high`; `low` when there is none behind that."""
    while high > low:
        first = max(low, high - CHUNK)
        found = os.pread(file, high - first, first).rfind(b"\n")
        if found >= 0:
            return first + found + 1
        high = first
    return low


def cut_line(file: int, read: LogFile, offset: int) -> bytes:
    """Returns the line that an offset lies within, as far as it is near; b"" when it lies between two lines."""
    if not read.start < offset < read.size or os.pread(file, 1, offset - 1) == b"\n":
        return b""
    start = line_start(file, max(read.start, offset - NEAR), offset)
    return os.pread(file, offset - start, start) + os.pread(file, NEAR, offset).partition(b"\n")[0]


def ended(file: int, read: LogFile, low: int, now: int) -> int:
    """Returns where the last whole line ends. One without an end is whole when nothing was written for a while."""
    end = line_start(file, low, read.size)
    if now - read.changed > QUIET_NS or read.size - end > UNENDED:
        return read.size
    return end


def with_times(file: int, read: LogFile, found: Sequence[FileLine], otherwise: int) -> list[FileLine]:
    """Returns lines with their times, and the levels of traces. A line without a timestamp has that of the one before
    it, as in a stack trace. Those before all others have the first that there is, else `otherwise`.
    """
    changed = read.changed
    stamps = [_own(row, changed) for row in found]
    current = stamps[0] if stamps[0] is not None else last_moment(file, read, found[0].start)
    if current is None:
        current = next((at for at in stamps if at is not None), otherwise)
    told, plain = [], 0
    for row, at, level in zip(found, stamps, _inherited(file, read, found), strict=True):
        plain = plain + 1 if at is None else 0
        if at is not None:
            current = at
        told.append(
            FileLine(row.start, row.end, row.raw, row.more, changed if plain > STACK_TRACE_LIMIT else current, level)
        )
    return told


def _inherited(file: int, read: LogFile, found: Sequence[FileLine]) -> list[LogLevel | None]:
    """Returns the levels of traces. What begins in the midst of a trace gets its level from the lines before it."""
    raws = [row.raw for row in found]
    first = found[0].start
    before = rows(file, _probe(file, read, first), first) if stack_traces.is_continuation(raws[0]) else ()
    return list(stack_traces.inherited_levels([*(row.raw for row in before), *raws]))[-len(raws) :]


def last_moment(file: int, read: LogFile, offset: int) -> int | None:
    """Returns the timestamp that a line at this offset has, if it has none of its own."""
    before = rows(file, _probe(file, read, offset), offset)
    return next((at for row in reversed(list(before)) if (at := _own(row, read.changed)) is not None), None)


def _probe(file: int, read: LogFile, offset: int) -> int:
    """Returns where the lines before an offset begin that are read because of it."""
    first = max(read.start, offset - PROBE)
    return max(first, _few(file, first, offset, PROBE // ROW_BYTES))


def _few(file: int, first: int, high: int, most: int) -> int:
    """Returns where the last so many whole lines of a part begin; `first` when it has no more than these."""
    part = os.pread(file, high - first, first)
    if part.count(b"\n") <= most:
        return first
    end = len(part.removesuffix(b"\n"))
    for _ in range(most):
        end = part.rfind(b"\n", 0, end)
    return first + end + 1


def offset_at(file: int, read: LogFile, high: int, moment: int) -> int:
    """Returns where the first line begins that is as late as this; `high` when none before it is, or when no line has a
    timestamp. In a file whose timestamps go back and forth it is only near.
    """
    if read.changed + AHEAD < moment:
        return high
    low, stop = read.start, high
    while stop - low > PROBE and (middle := line_start(file, low, (low + stop) // 2)) > low:
        at = next((at for row in rows(file, middle, _near(middle, stop)) if (at := _own(row, read.changed))), None)
        if at is not None and at < moment:
            low = middle
        else:
            stop = middle
    return next((row.start for row in _dated(file, read, low, _near(stop, high)) if row.at >= moment), high)


def _near(offset: int, most: int) -> int:
    return min(most, offset + SPARSE)


def _dated(file: int, read: LogFile, low: int, high: int) -> Iterator[FileLine]:
    """Yields lines that have a time of their own, or of one before them."""
    current = last_moment(file, read, low)
    for row in rows(file, low, high):
        at = _own(row, read.changed)
        current = at if at is not None else current
        if current is not None:
            yield row._replace(at=current)


def _own(row: FileLine, changed: int) -> int | None:
    """Returns a line's own timestamp. It cannot be much later than what was written last."""
    at = line_timestamp(row.raw)
    return at if at is not None and at <= changed + AHEAD else None


def window(file: int, low: int, high: int, size: int) -> int:
    """Returns where the first whole line begins in so many bytes before `high`, or the one line longer than that.

    Of very short lines it holds so many as would be usual in these bytes.
    """
    first = max(low, high - size)
    few = _few(file, first, high, size // ROW_BYTES)
    if few > first:
        return few
    if first == low:
        return low
    found = os.pread(file, high - first, first).find(b"\n")
    if 0 <= found < high - first - 1:
        return first + found + 1
    return line_start(file, low, first)
