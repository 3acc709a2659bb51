"""Reads the history of one server from our state store, or from the Prometheus that scrapes it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from recovery.config.nodes import Prometheus
from recovery.connections.registry import Registry
from recovery.domain.ages import SECOND
from recovery.domain.ewma import Ewma, fed
from recovery.domain.meters import Cell, Series, Window
from recovery.domain.servers import Origin
from recovery.errors import StoreError
from recovery.reads import servers
from recovery.reads.nodes import Nodes, Past
from recovery.reads.promql import Grid
from recovery.reads.shared import Shared

FINEST = 15 * SECOND  # ms: few servers are scraped more often, and a shorter step would only repeat a scrape
LIFE = 5.0  # seconds: however many viewers there are, a point is queried only a few times
_FROM = "Read from the Prometheus at {}."
_SILENT = "The Prometheus at {} could not be queried: {}. {}"
_pasts = Shared(life=LIFE, kept=64)


def history(registry: Registry, id: str, hours: float, now: int, *, origin: Origin | None) -> Series:
    """Returns at most 720 closed points, oldest first; `hours` is one of meters.HOURS. Raises StoreError of the state
    store.

    `origin`: the present source of this server's samples; None: there is none. If Prometheus does not answer, the
    series' note says so, and our own records are returned.
    """
    prometheus = registry.config.prometheus
    if prometheus and origin is Origin.PROMETHEUS:
        return _known(registry, prometheus, id, hours, now)
    own = servers.history(registry.state(), id, hours, now)
    if prometheus and origin is None and all(point.is_unknown for point in own.points):
        return _known(registry, prometheus, id, hours, now)
    return own


def _known(registry: Registry, prometheus: Prometheus, id: str, hours: float, now: int) -> Series:
    window, target = _coarser(Window.of(hours, now)), prometheus.endpoint.target
    nodes = Nodes(prometheus, registry.config.nodes)
    try:
        found = _pasts.get((prometheus, id, window), lambda: nodes.past(id, _grid(window)))
    except StoreError as error:
        own = servers.history(registry.state(), id, hours, now)
        return replace(own, note=_SILENT.format(target, error.reason, error.advice))
    return Series(tuple(_cells(window, found)), window.step, _FROM.format(target))


def _coarser(window: Window) -> Window:
    if window.step >= FINEST:
        return window
    length, end = window.size * window.step, window.end // FINEST * FINEST
    return Window(end - length, FINEST, length // FINEST)


def _grid(window: Window) -> Grid:
    """Returns the moments to query: a rate looks back, so its value at the end of a step belongs to that step."""
    step = window.step // SECOND
    return Grid(window.start // SECOND + step, step, window.size)


def _cells(window: Window, past: Past) -> Iterator[Cell]:
    """Yields the cells. Prometheus gives no peaks between two points; the average is computed as for the gate."""
    average: Ewma | None = None
    for place, (cpu, memory, load) in enumerate(zip(past.cpu, past.memory, past.load, strict=True)):
        at = window.start + place * window.step
        average = None if cpu is None else fed(average, cpu, at / SECOND)
        yield Cell(at, cpu, average.value if average else None, None, memory, load)
