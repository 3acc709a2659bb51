"""Keeps measurements of a server that are not written yet, while the state store is away: at most one hour of them."""

from __future__ import annotations

from collections.abc import Iterator

from recovery.domain.servers.metric_history import COARSE, FINE, HOUR, MINUTE, ServerCell, ServerRing, merge_cells

_KEPT = HOUR // FINE.unit  # cells: about 200 KB; what is older is lost when the store stays away for longer


class UnsentSamples:
    """Unwritten cells by their period. The current minute is kept after it was written: its mean is not final yet."""

    def __init__(self) -> None:
        self._fresh: set[int] = set()  # periods that are not written yet
        self._cells: dict[int, ServerCell] = {}  # these, and all of their minutes

    @property
    def is_empty(self) -> bool:
        return not self._fresh

    def add(self, cell: ServerCell, since: int | None = None) -> None:
        """Adds one sample. `since`: when the sample before was taken, if this one holds for all the time between: a
        late one then leaves no gap.
        """
        last = FINE.period(cell.at)
        first = last if since is None else min(last, FINE.period(since) + 1)
        for period in range(max(first, last - _KEPT + 1), last + 1):
            self._cells[period] = cell._replace(at=period * FINE.unit)
            self._fresh.add(period)
        while len(self._cells) > _KEPT:
            oldest = min(self._cells)
            del self._cells[oldest]
            self._fresh.discard(oldest)

    def pieces(self) -> Iterator[tuple[ServerRing, int, bytes]]:
        """Yields the ring, byte offset and bytes to write. Minutes are written again with each of their cells."""
        fresh = {period: self._cells[period] for period in self._fresh}
        for ring, cells in ((FINE, fresh), (COARSE, self._minutes())):
            for offset, piece in ring.pieces(cells):
                yield ring, offset, piece

    def written(self) -> None:
        """Forgets all pieces, which are in the store now, except for the newest minute."""
        newest = COARSE.period(self._cells[max(self._fresh)].at) if self._fresh else None
        self._fresh.clear()
        self._cells = {
            period: cell for period, cell in self._cells.items() if newest is None or cell.at // MINUTE == newest
        }

    def _minutes(self) -> dict[int, ServerCell]:
        touched = {COARSE.period(self._cells[period].at) for period in self._fresh}
        parts: dict[int, list[ServerCell]] = {minute: [] for minute in touched}
        for cell in self._cells.values():
            if (minute := COARSE.period(cell.at)) in parts:
                parts[minute].append(cell)
        return {minute: merge_cells(minute * MINUTE, cells) for minute, cells in parts.items()}
