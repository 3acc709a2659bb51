"""Orders the entries after a reader's place, over all servers, as far as the order is certain."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from recovery.logs.stream.cursors import AHEAD_MS
from recovery.logs.stream.store import NewerEntries, ShippedEntry

_ORDER = attrgetter("order")


def in_order(newer: NewerEntries) -> list[ShippedEntry]:
    """Returns entries up to where some server has more that was not asked for: it may belong between the rest."""
    ends = [newer.entries[server][-1].order for server in newer.cut]
    end = min(ends, default=None)
    settled = [entry for server in newer.entries for entry in _settled(newer, server)]
    return sorted((entry for entry in settled if end is None or entry.order <= end), key=_ORDER)


def _settled(newer: NewerEntries, server: bytes) -> Iterator[ShippedEntry]:
    """Yields entries before the current millisecond: another server may yet ship within it. The rest is for later."""
    for entry in newer.entries[server]:
        if newer.now <= entry.id[0] <= newer.now + AHEAD_MS:
            return
        yield entry
