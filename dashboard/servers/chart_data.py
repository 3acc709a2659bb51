"""Reads what the chart of one server shows: measurements, the gate's decisions and closed periods, lost jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from django.db import Error

from dashboard.live import state_cache
from dashboard.servers import gate_presenters
from dashboard.servers.chart_figure import ServerChartData, ServerChartMark
from recovery.domain.servers.metric_history import HOURS, ServerSeries
from recovery.reads.stuck import loss_history
from recovery.reads.stuck.loss_history import JobLossBucket
from recovery.servers import queries as servers_queries
from recovery.servers import server_history
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import SharedReads

LIFE = 2.0  # seconds; the newest point is a closed one of at least five
KEPT = 64  # charts
RANGES = dict(zip(("15m", "1h", "6h", "24h", "7d"), HOURS, strict=True))
_UNSAID = "Lost jobs and the gate history cannot be read: the database does not answer."

_pasts = SharedReads(life=LIFE, kept=KEPT)


def read_chart(id: str, hours: float, now: int) -> ServerChartData:
    """Returns a chart's data. Raises StoreError; without the database its marks are missing, and the note says so."""
    return _pasts.get((id, hours), lambda: _read(id, hours, now))


def kinds(drawn: ServerChartData) -> dict[str, bool]:
    """Returns which kinds of marks are on the chart, for the words beside it."""
    names = ("shut", "let_in", "refused", "lost_here", "lost_elsewhere")
    return {name: bool(getattr(drawn, name)) for name in names}


def _read(id: str, hours: float, now: int) -> ServerChartData:
    store, series = registry().state(), read_series(id, hours, now)
    start = series.points[0].at if series.points else now
    others, gate = servers_queries.last_seen(store), gate_presenters.decision_marks(store, id, start, series.step)
    try:
        lost, shut = (
            loss_history.losses_by_step(id, others, start, series.step),
            gate_presenters.read_closed_periods(id, start, now),
        )
    except Error:
        lost, shut, series = (), (), replace(series, note=f"{series.note} {_UNSAID}".strip())
    terms = gate_presenters.terms(id)
    return ServerChartData(
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


def read_series(id: str, hours: float, now: int) -> ServerSeries:
    """Returns the measurements, from the source that reports this server. Raises StoreError."""
    origin = next((server.origin for server in state_cache.servers() if server.id == id), None)
    return server_history.history(registry(), id, hours, now, origin=origin)


def _marks(lost: Iterable[JobLossBucket]) -> tuple[ServerChartMark, ...]:
    return tuple(ServerChartMark(loss.at, loss.words) for loss in lost)
