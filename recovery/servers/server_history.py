"""Reads the history of one server from our state store, or from the Prometheus that scrapes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recovery.config.nodes import PrometheusConfig
from recovery.domain.servers.ewma import Ewma, add_sample
from recovery.domain.servers.metric_history import ServerCell, ServerSeries, ServerWindow
from recovery.domain.servers.samples import SampleOrigin
from recovery.domain.time_units import SECOND
from recovery.errors import StoreError
from recovery.servers import queries as servers_queries
from recovery.servers.prometheus_nodes import PrometheusHistory, PrometheusNodes
from recovery.stores.http.promql import PrometheusGrid
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state.shared_read import SharedReads

FINEST = 15 * SECOND  # ms: few servers are scraped more often, and a shorter step would only repeat a scrape
LIFE = 5.0  # seconds: however many viewers there are, a point is queried only a few times
_FROM = "Read from the Prometheus at {}."
_SILENT = "The Prometheus at {} could not be queried: {}. {}"
_pasts = SharedReads(life=LIFE, kept=64)


def history(
    registry: ConnectionRegistry, id: str, hours: float, now: int, *, origin: SampleOrigin | None
) -> ServerSeries:
    """Returns at most 720 closed points, oldest first; `hours` is one of meters.HOURS. Raises StoreError of the state
    store.

    `origin`: the present source of this server's samples; None: there is none. If Prometheus does not answer, the
    series' note says so, and our own records are returned.
    """
    prometheus = registry.config.prometheus
    if prometheus and origin is SampleOrigin.PROMETHEUS:
        return _known(registry, prometheus, id, hours, now)
    own = servers_queries.history(registry.state(), id, hours, now)
    if prometheus and origin is None and all(point.is_unknown for point in own.points):
        return _known(registry, prometheus, id, hours, now)
    return own


def _known(registry: ConnectionRegistry, prometheus: PrometheusConfig, id: str, hours: float, now: int) -> ServerSeries:
    window, target = _coarser(ServerWindow.of(hours, now)), prometheus.endpoint.target
    nodes = PrometheusNodes(prometheus, registry.config.nodes)
    try:
        found = _pasts.get((prometheus, id, window), lambda: nodes.past(id, _grid(window)))
    except StoreError as error:
        own = servers_queries.history(registry.state(), id, hours, now)
        return replace(own, note=_SILENT.format(target, error.reason, error.advice))
    return ServerSeries(tuple(_cells(window, found)), window.step, _FROM.format(target))


def _coarser(window: ServerWindow) -> ServerWindow:
    if window.step >= FINEST:
        return window
    length, end = window.size * window.step, window.end // FINEST * FINEST
    return ServerWindow(end - length, FINEST, length // FINEST)


def _grid(window: ServerWindow) -> PrometheusGrid:
    """Returns the moments to query: a rate looks back, so its value at the end of a step belongs to that step."""
    step = window.step // SECOND
    return PrometheusGrid(window.start // SECOND + step, step, window.size)


def _cells(window: ServerWindow, past: PrometheusHistory) -> Iterator[ServerCell]:
    """Yields the cells. Prometheus gives no peaks between two points; the average is computed as for the gate."""
    average: Ewma | None = None
    for place, (cpu, memory, load) in enumerate(zip(past.cpu, past.memory, past.load, strict=True)):
        at = window.start + place * window.step
        average = None if cpu is None else add_sample(average, cpu, at / SECOND)
        yield ServerCell(at, cpu, average.value if average else None, None, memory, load)
