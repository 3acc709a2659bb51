"""Cursors: where the next page starts, as text for a URL. A cursor from outside that cannot be read is the start."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from recovery.domain.identifiers import decode_name, encode_name, slug, unslug

_OFFSET = re.compile(r"[0-9]{1,12}")


class SortedSetCursor(NamedTuple):
    """Cursor of a sorted set: the last job shown, or with `is_back` the first one, to turn back from."""

    score: float
    id: bytes
    is_back: bool = False

    def __str__(self) -> str:
        return f"{'b' if self.is_back else 'f'},{self.score!r},{slug(decode_name(self.id))}"


class ListCursor(NamedTuple):
    """Cursor of a list: offset from its end, and the last job shown, to find the place again when it has moved."""

    rows: int
    anchor: bytes = b""

    def __str__(self) -> str:
        return f"o,{self.rows},{slug(decode_name(self.anchor))}"


def after_removal(before: str, after: str, gone: int, last: str) -> str:
    """Returns the cursor behind a page of which so many jobs left their list; `last` of it is still there, or "".

    `before` is the cursor of the page. In a sorted set the place of the next page does not change.
    """
    if not is_offset(after) or not gone:
        return after
    return str(ListCursor(max(0, offset(after).rows - gone), encode_name(last))) if last else before


def is_offset(cursor: str) -> bool:
    """Returns True if it counts the jobs in front of it, so that it is wrong when others leave the list."""
    return _parts(cursor)[0] == "o"


def spot(cursor: str) -> SortedSetCursor | None:
    kind, score, id = _parts(cursor)
    try:
        at = float(score)
    except ValueError:
        return None
    return SortedSetCursor(at, id, kind == "b") if kind in ("f", "b") and not math.isnan(at) else None


def offset(cursor: str) -> ListCursor:
    kind, count, anchor = _parts(cursor)
    return ListCursor(int(count), anchor) if kind == "o" and _OFFSET.fullmatch(count) else ListCursor(0)


def _parts(cursor: str) -> tuple[str, str, bytes]:
    kind, _, rest = cursor.partition(",")
    middle, _, id = rest.partition(",")
    try:
        return kind, middle, encode_name(unslug(id)) if id else b""
    except ValueError:
        return "", "", b""
