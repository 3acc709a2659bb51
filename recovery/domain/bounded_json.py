"""Reads JSON of unknown origin within bounds: as objects it may take thirty times the memory of its text."""

from __future__ import annotations

import json
from typing import Any

VALUES_LIMIT = 500_000  # values of one text, about: 60 MB at the very worst; 8 MB of usual JSON have fewer


class TooManyValues(ValueError):
    """The text has more than VALUES_LIMIT values, so it was not read."""


def loads(text: str) -> Any:
    """Parses JSON like json.loads. Raises ValueError, RecursionError."""
    if len(text) > VALUES_LIMIT and sum(map(text.count, ",[{")) > VALUES_LIMIT:
        raise TooManyValues(f"more than {VALUES_LIMIT:,} values")
    return json.loads(text)
