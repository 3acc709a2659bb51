"""Types of a page of ids, before their jobs are read."""

from __future__ import annotations

from typing import NamedTuple


class JobIdEntry(NamedTuple):
    """Job id, and in a sorted set its score."""

    id: bytes
    score: float | None = None


class PageRequest(NamedTuple):
    """Request for a page: from where, how long, and from which end."""

    cursor: str
    size: int
    ascending: bool
    margin: int = 0  # ids read beyond it on both sides, to find the place again


class IdWindow(NamedTuple):
    """Ids of one page of a state; `total` None: the store would not say."""

    entries: tuple[JobIdEntry, ...] = ()
    total: int | None = None
    next: str = ""
    previous: str = ""
    start: int = 0  # of a list: how many ids stand before the first one, from the end at which it is read
