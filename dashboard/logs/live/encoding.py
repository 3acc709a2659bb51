"""Encodes log lines for streams: each line once, shared by all its readers.

A batch is what fits into one event. A piece is what a reader's filter selects from a batch: the bytes of the event's
`sets` and `lines`, without what only this reader has.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from dashboard.logs.live import cursor
from dashboard.logs.live.cursor import LogCursorPosition
from recovery.domain.logs.types import LogLine, LogQuery
from recovery.logs.base import LogGap, LogResultPage

BATCH_LINES = 500
BATCH_BYTES = 64 * 1024
LINE_WEIGHT = 400  # bytes that a line takes in memory besides its text
SHARED = 32  # filters whose piece of a batch is cached; for further ones it is encoded again


@dataclass(frozen=True, slots=True)
class EncodedLine:
    """Encoded line; the number of its label set goes between `head` and `rest`."""

    line: LogLine
    head: bytes
    set: bytes
    rest: bytes

    @property
    def size(self) -> int:
        return len(self.head) + len(self.rest) + 4


@dataclass(frozen=True, slots=True)
class EncodedLines:
    """Encoded lines as bytes, and their number."""

    body: bytes
    count: int


class FeedBatch:
    """Lines of one source in their order, as many as one event holds."""

    __slots__ = ("_part", "_pieces", "gap", "lines", "place", "weight")

    def __init__(self, lines: Sequence[EncodedLine], place: str, gap: LogGap | None = None) -> None:
        self.lines = lines
        self.place = place  # position behind the last line
        self.gap = gap  # gap before the first line
        self.weight = sum(len(one.head) + len(one.rest) + len(one.line.text) + LINE_WEIGHT for one in lines)
        self._part = b""
        self._pieces: dict[LogQuery, EncodedLines | None] = {}

    def part(self, name: str) -> bytes:
        """Returns the cursor part behind the last line, for a source of this name; cached, as readers share it."""
        self._part = self._part or cursor.encode_part(name, LogCursorPosition(self.place))
        return self._part

    def piece(self, query: LogQuery | None = None, skip: int = 0) -> EncodedLines | None:
        """Returns the lines that a filter selects, from line `skip` on; None if none. Cached, as readers share it."""
        if query is None or skip:
            return self._cut(query, skip)
        if query in self._pieces:
            return self._pieces[query]
        piece = self._cut(query)
        if len(self._pieces) < SHARED:
            self._pieces[query] = piece
        return piece

    def count(self, query: LogQuery, skip: int = 0) -> int:
        piece = self.piece(query, skip)
        return piece.count if piece else 0

    def behind(self, id: str) -> int | None:
        """Returns the number of lines up to and including this one; None if it is not in the batch."""
        return next((number for number, one in enumerate(self.lines, 1) if one.line.id == id), None)

    def forget(self) -> None:
        """Drops the cached pieces; a later reader has them encoded again."""
        self._pieces.clear()

    def _cut(self, query: LogQuery | None, skip: int = 0) -> EncodedLines | None:
        chosen = [one for one in self.lines[skip:] if query is None or query.matches(one.line)]
        return EncodedLines(encode_body(chosen), len(chosen)) if chosen else None


def encode_lines(lines: Iterable[LogLine]) -> Iterator[EncodedLine]:
    """Encodes lines; labels that several lines share are encoded once."""
    sets: dict[int, bytes] = {}
    for line in lines:
        labels = sets.get(id(line.labels))
        if labels is None:
            labels = sets[id(line.labels)] = _json(dict(sorted(line.labels.items())))
        text = [[span.look, span.text] for span in line.spans] if line.spans else line.text
        head = b"[%s," % _json([line.id, str(line.at), line.level or ""])[1:-1]
        yield EncodedLine(line, head, labels, b",%s,%d]" % (_json(text), line.left_out))


def split_into_batches(rows: Iterable[EncodedLine], place: str, gap: LogGap | None = None) -> Iterator[FeedBatch]:
    """Yields the lines of a page as batches, none without lines and gap; `place` is the position behind the page."""
    some: list[EncodedLine] = []
    size = 0
    for row in rows:
        if some and (len(some) >= BATCH_LINES or size + row.size > BATCH_BYTES):
            yield FeedBatch(some, some[-1].line.id, gap)
            some, size, gap = [], 0, None
        some.append(row)
        size += row.size
    if some or gap:
        yield FeedBatch(some, place, gap)


def encode_batches(rows: Sequence[EncodedLine], place: str) -> deque[tuple[EncodedLines, str]]:
    """Returns the rows as bytes, each piece with the position behind it, so that the rows can be freed."""
    return deque((piece, batch.place) for batch in split_into_batches(rows, place) if (piece := batch.piece()))


def first_rows_within(rows: Sequence[EncodedLine], most: int) -> Sequence[EncodedLine]:
    """Returns the first rows that fit into `most` bytes, at least one."""
    size = 0
    for number, row in enumerate(rows):
        size += row.size
        if size > most and number:
            return rows[:number]
    return rows


def newest_rows_within(page: LogResultPage, most: int) -> tuple[list[EncodedLine], str]:
    """Returns the newest lines of a page that fit into `most` bytes, and the position where older ones begin."""
    rows = list(encode_lines(page.lines))
    size = 0
    for number in range(len(rows) - 1, -1, -1):
        size += rows[number].size
        if size > most and number < len(rows) - 1:
            return rows[number + 1 :], rows[number].line.id
    return rows, page.before


def encode_body(lines: Iterable[EncodedLine]) -> bytes:
    """Encodes lines and their label sets as the members `sets` and `lines` of an event or answer."""
    sets: dict[bytes, int] = {}
    rows = [b"%s%d%s" % (one.head, sets.setdefault(one.set, len(sets)), one.rest) for one in lines]
    return b'"sets":[%s],"lines":[%s]' % (b",".join(sets), b",".join(rows))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")
