"""Reads how many failed jobs a job's own options want to be kept when it fails.

`removeOnFail` is true or false, a number of jobs, or an object with `count` and `age` in seconds. What it means is
taken from where the library fails a job that was handled: its stalled check, when told to keep none, wipes all failed
jobs (`0`) or keeps the job for ever (`{"count": 0}`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Retention(NamedTuple):
    """Failed jobs to keep. `keep` None: all; 0: not even this one. `age` in ms; None: however old."""

    keep: int | None = None
    age: int | None = None


def parse_retention(options: Mapping[str, Any]) -> Retention:
    """Returns what `removeOnFail` says; what cannot be understood keeps everything."""
    wish = options.get("removeOnFail")
    if wish is True:
        return Retention(0)
    if isinstance(wish, dict):
        age = _number(wish.get("age"))
        return Retention(_count(wish.get("count")), None if age is None else int(age * 1000))
    return Retention(_count(wish))


def _count(wish: Any) -> int | None:
    number = _number(wish)
    return None if number is None else int(number)


def _number(wish: Any) -> float | None:
    is_number = isinstance(wish, (int, float)) and not isinstance(wish, bool)
    return wish if is_number and 0 <= wish < 2**53 else None
