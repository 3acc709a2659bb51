"""Passes over small parcels by the dozen: an hour of quiet files has forty thousand, most without a hit.

To look at each of them costs more than to decompress it. So many are decompressed as one text, and where that cannot
hold what is looked for they become one entry that stands for all of them. It lies where the oldest of them does: a
search that stops before it begins with them again.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from recovery.domain.logs.sanitize import line_prefilter
from recovery.domain.logs.types import LogQuery
from recovery.logs.stream.positions import mark_of, parse_id
from recovery.logs.stream.store import FIELDS, Row, ShippedEntry, entries_of, labels_of, short

AT_ONCE = 64  # entries
SMALL = 512  # bytes of a body, compressed, on average: all expand to 34 MB at the very worst, and to 60 KB mostly
_LABELS, _FIRST, _LAST, _BODY = (2 * FIELDS.index(name) + 1 for name in (b"labels", b"first", b"last", b"body"))

Sift = Callable[[bytes, Sequence[Row]], Sequence[ShippedEntry]]  # of a server


def prefilter_for(query: LogQuery) -> Sift:
    """Returns the prefilter of a query. One that lets an empty text through asks for no text: every parcel is read."""
    return entries_of if line_prefilter(query)(b"") else _Sifting(query)


class _Sifting:
    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._may_match = line_prefilter(query)
        self._may_match_text = line_prefilter(replace(query, levels=frozenset()))

    def __call__(self, server: bytes, rows: Sequence[Row]) -> Sequence[ShippedEntry]:
        found: list[ShippedEntry] = []
        for start in range(0, len(rows), AT_ONCE):
            some = rows[start : start + AT_ONCE]
            passed = self._passed(server, some)
            found += entries_of(server, some) if passed is None else (passed,)
        return found

    def _passed(self, server: bytes, rows: Sequence[Row]) -> ShippedEntry | None:
        """Returns one entry for all; None to read each: they may match, are large, or not as we write them."""
        if any(fields[::2] != FIELDS for _, fields in rows):
            return None
        try:
            held = [fields for _, fields in rows if self._may_hold(server, fields)]
            if any(self._query.beside(labels_of(server, short(fields[_LABELS]))) is not self._query for fields in held):
                return None
            bodies = [fields[_BODY] for fields in held]
            if sum(map(len, bodies)) > SMALL * AT_ONCE:
                return None
            text = b"\n".join(map(zlib.decompress, bodies))
        except (ValueError, zlib.error):
            return None
        is_told = bool(self._query.levels) and any(_may_tell(fields[_LABELS]) for _, fields in rows)
        if bodies and (self._may_match_text if is_told else self._may_match)(text):
            return None
        lines = text.count(b"\n") + 1 if bodies else 0
        order = parse_id(rows[-1][0]), mark_of(server)
        return ShippedEntry(order, server, (b"{}", b"%d" % lines, b"", b"", b""), passed=len(rows))

    def _may_hold(self, server: bytes, fields: Sequence[bytes]) -> bool:
        query = self._query
        return (
            (query.start is None or int(fields[_LAST]) >= query.start)
            and (query.end is None or int(fields[_FIRST]) < query.end)
            and (not query.labels or query.has(labels_of(server, short(fields[_LABELS]))))
        )


def _may_tell(labels: bytes) -> bool:
    """Returns True if labels may have the level of the lines, whatever these say of themselves."""
    return b"level" in labels or b"\\u" in labels
