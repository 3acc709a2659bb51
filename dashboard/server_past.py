"""Reads what the chart of one server shows: measurements, the gate's decisions and closed periods, lost jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django.db import Error

from dashboard import gate_cells
from dashboard.charts.machine import Drawn, Mark
from dashboard.live import mirror
from recovery.connections.registry import registry
from recovery.domain.meters import HOURS, Series
from recovery.reads import losses, past, servers
from recovery.reads.losses import Loss
from recovery.reads.shared import Shared

LIFE = 2.0  # seconds; the newest point is a closed one of at least five
KEPT = 64  # charts
RANGES = dict(zip(("15m", "1h", "6h", "24h", "7d"), HOURS, strict=True))
_UNSAID = "Lost jobs and the gate history cannot be read: the database does not answer."

_pasts = Shared(life=LIFE, kept=KEPT)


def of(id: str, hours: float, now: int) -> Drawn:
    """Returns a chart's data. Raises StoreError; without the database its marks are missing, and the note says so."""
    return _pasts.get((id, hours), lambda: _read(id, hours, now))


def kinds(drawn: Drawn) -> dict[str, bool]:
    """Returns which kinds of marks are on the chart, for the words beside it."""
    names = ("shut", "let_in", "refused", "lost_here", "lost_elsewhere")
    return {name: bool(getattr(drawn, name)) for name in names}


def _read(id: str, hours: float, now: int) -> Drawn:
    store, series = registry().state(), measured(id, hours, now)
    start = series.points[0].at if series.points else now
    others, gate = servers.seen(store), gate_cells.decided(store, id, start, series.step)
    try:
        lost, shut = losses.around(id, others, start, series.step), gate_cells.shut(id, start, now)
    except Error:
        lost, shut, series = (), (), replace(series, note=f"{series.note} {_UNSAID}".strip())
    terms = gate_cells.terms(id)
    return Drawn(
        series,
        start,
        now,
        close_at=terms.close_at,
        open_at=terms.open_at,
        shut=shut,
        let_in=gate.let_in,
        refused=gate.refused,
        lost_here=_marks(loss for loss in lost if loss.is_here),
        lost_elsewhere=_marks(loss for loss in lost if not loss.is_here),
    )


def measured(id: str, hours: float, now: int) -> Series:
    """Returns the measurements, from the source that reports this server. Raises StoreError."""
    origin = next((server.origin for server in mirror.servers() if server.id == id), None)
    return past.history(registry(), id, hours, now, origin=origin)


def _marks(lost: Iterable[Loss]) -> tuple[Mark, ...]:
    return tuple(Mark(loss.at, loss.words) for loss in lost)
