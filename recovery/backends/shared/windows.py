"""Reads one page of ids out of a list or a sorted set, whatever comes and goes meanwhile."""

from __future__ import annotations

from recovery.backends.base import Wire
from recovery.backends.shared import lists, sets
from recovery.backends.shared.entries import Entry, Window, Wish
from recovery.backends.shared.layout import Place, Scene

__all__ = ["Entry", "Window", "window"]


def window(
    wire: Wire, scene: Scene, place: Place, *, cursor: str, size: int, oldest_first: bool | None = None
) -> Window:
    """Costs O(log n + size) in a sorted set; in a list a seek of O(n / 1000) and, when jobs moved, one LPOS."""
    ascending = not place.newest_first if oldest_first is None else oldest_first
    read = lists.window if place.is_list else sets.window
    return read(wire, scene, place, Wish(cursor, size, ascending))
