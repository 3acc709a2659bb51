"""Reads values back from a store: each has the type it was written with, or all of the record counts as unreadable."""

from __future__ import annotations

from typing import Any


def whole(written: Any) -> int:
    """Returns an int; raises ValueError. True and 1.0 are none: we write neither where a number belongs."""
    if type(written) is not int:
        raise ValueError("not a whole number")
    return written


def whole_or_none(written: Any) -> int | None:
    return None if written is None else whole(written)


def count(written: Any) -> int:
    """Returns an int that is not negative; raises ValueError."""
    if whole(written) < 0:
        raise ValueError("a negative count")
    return whole(written)


def text(written: Any) -> str:
    if not isinstance(written, str):
        raise ValueError("not a text")  # noqa: TRY004 - one exception for all that is unreadable
    return written


def flag(written: Any) -> bool:
    if not isinstance(written, bool):
        raise ValueError("not true or false")  # noqa: TRY004 - as above
    return written


def fields(written: Any, *names: str) -> list[Any]:
    """Returns the values of a table that has at least these fields; raises ValueError."""
    if not isinstance(written, dict) or not written.keys() >= set(names):
        raise ValueError("not a table with " + ", ".join(names))
    return [written[name] for name in names]


def rows(written: Any, width: int) -> list[list[Any]]:
    """Returns a list of lists of one width; raises ValueError."""
    if not isinstance(written, list) or any(not isinstance(row, list) or len(row) != width for row in written):
        raise ValueError("not a list of rows")
    return written
