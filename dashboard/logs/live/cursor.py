"""Encodes and decodes the cursor of a log stream: how far it is in each source; the browser sends it on reconnect.

It is the id of an event, so it is short and plain ASCII. It is untrusted input: any client may have written it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from recovery.logs.base import PLACE_LIMIT

LONGEST = 5000  # of the whole text: four sources, two places each, every character of them quoted
SOURCES = 4


class CursorUnreadable(ValueError):
    """Raised for a text that is no cursor of ours."""


@dataclass(frozen=True, slots=True)
class LogCursorPosition:
    """Position in one source. `before`: where older lines begin, until the browser has received it."""

    place: str
    before: str | None = None


def encode_part(name: str, spot: LogCursorPosition) -> bytes:
    """Encodes one source's part of a cursor; the parts are joined with `&`."""
    told = spot.place if spot.before is None else f"{spot.place} {spot.before}"
    return f"{name}={quote(told, safe=':.-_~,;/')}".encode("ascii")


def decode(text: str) -> Mapping[str, LogCursorPosition]:
    """Decodes a cursor into the position in each source. Raises Unreadable."""
    if len(text) > LONGEST:
        raise CursorUnreadable
    try:
        parts = parse_qsl(text, strict_parsing=True, max_num_fields=SOURCES, errors="strict")
    except ValueError as error:
        raise CursorUnreadable from error
    return {name: _spot(told) for name, told in parts}


def _spot(told: str) -> LogCursorPosition:
    place, blank, before = told.partition(" ")
    if not _is_place(place) or not place or not (_is_place(before) or not before):
        raise CursorUnreadable
    return LogCursorPosition(place, before if blank else None)


def _is_place(text: str) -> bool:
    return len(text) <= PLACE_LIMIT and text.isascii() and text.isprintable() and " " not in text
