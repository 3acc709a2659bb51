"""Reads one page of ids out of a list or a sorted set, whatever comes and goes meanwhile."""

from __future__ import annotations

from recovery.backends.base import CommandClient
from recovery.backends.redis_common.layout import QueueContext, StatePlace
from recovery.backends.redis_common.paging import list_pages, sorted_set_pages
from recovery.backends.redis_common.paging.types import IdWindow, JobIdEntry, PageRequest

__all__ = ["IdWindow", "JobIdEntry", "window"]


def window(
    wire: CommandClient,
    context: QueueContext,
    place: StatePlace,
    *,
    cursor: str,
    size: int,
    oldest_first: bool | None = None,
) -> IdWindow:
    """Costs O(log n + size) in a sorted set; in a list a seek of O(n / 1000) and, when jobs moved, one LPOS."""
    ascending = not place.newest_first if oldest_first is None else oldest_first
    read = list_pages.window if place.is_list else sorted_set_pages.window
    return read(wire, context, place, PageRequest(cursor, size, ascending))
