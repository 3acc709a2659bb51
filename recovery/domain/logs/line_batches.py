"""Packs log lines on their way from a server to the state store: many in one stream entry, small and quick to make.

An entry has the fields `labels` (JSON, one set for all of its lines), `count`, `first` and `last` (ns, the moments of
its oldest and newest line) and `body`: the lines, each behind its moment, compressed together. A line that was cut has
the number of missing bytes behind its moment: `1700000000000000000+4096`.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

_LEVEL = 1  # of zlib: logs shrink to a seventh with it, and the monitor has one core to spare at most
# Up to so many bytes a parcel is folded without a table of its own: a fifth larger, and unfolded in half the time. A
# search of an hour unfolds forty thousand such.
_SMALL = 2048
LARGEST = 8 * 1024 * 1024  # bytes that one entry may unfold to: what claims more is not ours
ROWS = 32 * 1024  # lines that one entry may hold: monitors pack 26,214 at most (PARCEL), and each costs its reader
SURE = LARGEST // 1100  # a smaller body cannot unfold to more: nothing that zlib knows is folded so tightly
_DIGITS = 19  # of a moment in ns, until the year 2262


class CutLine(bytes):
    """Beginning of a line; `left_out` bytes followed."""

    left_out: int = 0

    @classmethod
    def of(cls, line: bytes, left_out: int) -> CutLine:
        made = cls(line)
        made.left_out = left_out
        return made


Raw = tuple[int, bytes]  # when (ns), and the line as it was written, without its end


@dataclass(frozen=True, slots=True)
class LineBatch:
    lines: tuple[Raw, ...]
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)

    def encode(self) -> dict[str, str | int | bytes]:
        """Returns the fields of the entry. A line never holds a line feed: it was split at them."""
        moments = [at for at, _ in self.lines]
        body = b"\n".join([b"%b\t%b" % (_moment(at, line), line.replace(b"\n", b" ")) for at, line in self.lines])
        return {
            "labels": json.dumps(self.labels, ensure_ascii=False, sort_keys=True, separators=(",", ":")),
            "count": len(self.lines),
            "first": min(moments),
            "last": max(moments),
            "body": _folded(body),
        }


def unpack_lines(body: bytes) -> Iterable[Raw]:
    """Parses the lines of a body; raises ValueError when it is none."""
    return (unpack_line(row) for row in decompress_rows(body).split(b"\n"))


def decompress_rows(body: bytes) -> bytes:
    """Decompresses all rows, with line feeds between them; raises ValueError when it is no body, or not all of one."""
    try:
        unfolding = zlib.decompressobj()
        rows = zlib.decompress(body) if len(body) < SURE else unfolding.decompress(body, LARGEST)
    except zlib.error as failure:
        raise ValueError("a parcel of lines cannot be unfolded") from failure
    if len(body) >= SURE and not unfolding.eof:
        raise ValueError("a parcel of lines is too large, or cut")
    if rows.count(b"\n") >= ROWS:
        raise ValueError("a parcel has too many lines")
    return rows


def _folded(rows: bytes) -> bytes:
    if len(rows) > _SMALL:
        return zlib.compress(rows, _LEVEL)
    folding = zlib.compressobj(_LEVEL, strategy=zlib.Z_FIXED)
    return folding.compress(rows) + folding.flush()


def unpack_line(row: bytes) -> Raw:
    """Parses one row of a body; raises ValueError when it has no moment."""
    moment, _, written = row.partition(b"\t")
    at, _, left_out = moment.partition(b"+")
    if max(len(at), len(left_out)) > _DIGITS:
        raise ValueError("a line has no moment")
    return int(at), CutLine.of(written, int(left_out)) if left_out else written


def _moment(at: int, line: bytes) -> bytes:
    left_out = line.left_out if isinstance(line, CutLine) else 0
    return b"%d+%d" % (at, left_out) if left_out else b"%d" % at
