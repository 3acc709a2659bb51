"""Values read back from a store: each is of the kind it was written as, or the whole counts as unreadable."""

from __future__ import annotations

from typing import Any


def whole(written: Any) -> int:
    """An int; raises ValueError. True and 1.0 are none: nothing of ours writes them where a number stands."""
    if type(written) is not int:
        raise ValueError("not a whole number")
    return written


def whole_or_none(written: Any) -> int | None:
    return None if written is None else whole(written)


def count(written: Any) -> int:
    """An int that is not negative; raises ValueError."""
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
    """The values of a table that has at least these; raises ValueError."""
    if not isinstance(written, dict) or not written.keys() >= set(names):
        raise ValueError("not a table with " + ", ".join(names))
    return [written[name] for name in names]


def rows(written: Any, width: int) -> list[list[Any]]:
    """A list of lists of one width; raises ValueError."""
    if not isinstance(written, list) or any(not isinstance(row, list) or len(row) != width for row in written):
        raise ValueError("not a list of rows")
    return written
