"""Cursors: where the next page starts, as text for a URL. A cursor from outside that cannot be read is the start."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from recovery.domain.refs import raw, slug, text, unslug

_OFFSET = re.compile(r"[0-9]{1,12}")


class Spot(NamedTuple):
    """Cursor of a sorted set: the last job shown, or with `is_back` the first one, to turn back from."""

    score: float
    id: bytes
    is_back: bool = False

    def __str__(self) -> str:
        return f"{'b' if self.is_back else 'f'},{self.score!r},{slug(text(self.id))}"


class Offset(NamedTuple):
    """Cursor of a list: offset from its end, and the last job shown, to find the place again when it has moved."""

    rows: int
    anchor: bytes = b""

    def __str__(self) -> str:
        return f"o,{self.rows},{slug(text(self.anchor))}"


def without(before: str, after: str, gone: int, last: str) -> str:
    """Returns the cursor behind a page of which so many jobs left their list; `last` of it is still there, or "".

    `before` is the cursor of the page. In a sorted set the place of the next page does not change.
    """
    if not is_offset(after) or not gone:
        return after
    return str(Offset(max(0, offset(after).rows - gone), raw(last))) if last else before


def is_offset(cursor: str) -> bool:
    """Returns True if it counts the jobs in front of it, so that it is wrong when others leave the list."""
    return _parts(cursor)[0] == "o"


def spot(cursor: str) -> Spot | None:
    kind, score, id = _parts(cursor)
    try:
        at = float(score)
    except ValueError:
        return None
    return Spot(at, id, kind == "b") if kind in ("f", "b") and not math.isnan(at) else None


def offset(cursor: str) -> Offset:
    kind, count, anchor = _parts(cursor)
    return Offset(int(count), anchor) if kind == "o" and _OFFSET.fullmatch(count) else Offset(0)


def _parts(cursor: str) -> tuple[str, str, bytes]:
    kind, _, rest = cursor.partition(",")
    middle, _, id = rest.partition(",")
    try:
        return kind, middle, raw(unslug(id)) if id else b""
    except ValueError:
        return "", "", b""
