"""Reads JSON numbers where whole ones are meant."""

from __future__ import annotations

from typing import Any

_EXACT = 2**53  # beyond it JavaScript counts no single steps


def whole(value: Any) -> int | None:
    """Returns a whole number, or None for anything else; a fraction is cut off."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < _EXACT:
        return None
    return int(value)
