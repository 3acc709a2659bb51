"""Reads servers with a node_exporter from a Prometheus: the newest values of all, and the history of one.

A server's name is the value of one label without the port, or the name that [[nodes]] gives it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from recovery.config.nodes import NodeConfig, PrometheusConfig
from recovery.domain.servers.cpu_counters import IDLE
from recovery.domain.servers.node_exporter import (
    AVAILABLE,
    CORES,
    DISK_FREE,
    DISK_SIZE,
    HOST,
    LOADS,
    MEMORY,
    NodeGauges,
    gauges_of_values,
)
from recovery.domain.time_units import SECOND
from recovery.stores.http import promql
from recovery.stores.http.promql import PrometheusGrid, PrometheusSeries, quoted

LOOKS_BACK = 300  # seconds: the default lookback of Prometheus for a newest value
SERVERS_LIMIT = 500  # as many as a page shows
NAME_LIMIT = 255  # characters: the longest host name
_EXACT_UP_TO = 60  # seconds of a step: up to this irate of the last two samples, above it the average rate
_PORT = re.compile(r":\d{1,5}\Z")
_IDLING = 'mode="idle"'  # every core has this one, once

_Over = Callable[[str], str]  # a series → its rate


@dataclass(frozen=True, slots=True)
class PrometheusReading:
    """Newest values of one server. `at` is the time of its scrape by the clock of Prometheus, `age` how long ago that
    was when Prometheus answered; `interval` is the time between two scrapes. All in ms.
    """

    id: str
    at: int
    age: int
    interval: int
    cpu: float
    cores: int | None
    gauges: NodeGauges
    address: str  # or its name


@dataclass(frozen=True, slots=True)
class PrometheusHistory:
    """History of one server at the moments of a chart's grid; in percent, but for the load."""

    cpu: tuple[float | None, ...]
    memory: tuple[float | None, ...]
    load: tuple[float | None, ...]


class PrometheusNodes:
    """Queries for the servers of one Prometheus. It keeps no state between two calls."""

    def __init__(self, prometheus: PrometheusConfig, nodes: Sequence[NodeConfig] = ()) -> None:
        self._prometheus = prometheus
        self._label = prometheus.label
        self._named = {node.instance: node.id for node in nodes if node.instance}

    def newest(self) -> tuple[PrometheusReading, ...]:
        """Returns the newest values of every server that was scraped at least twice. Raises StoreError."""
        idle = self._series(CORES, _IDLING)
        queries = (
            self._busy(_irate),
            self._max(f"timestamp({idle})"),
            self._max(f"count_over_time({idle}[{LOOKS_BACK}s])"),
            f"count by ({self._label}) ({idle})",
            self._told(),
        )
        busy, at, looks, cores, told = promql.instant(self._prometheus.endpoint, queries)
        cpu, seen, asked = self._values(busy), self._values(at), self._times(at)
        scrapes, counted, gauges, ids = self._values(looks), self._values(cores), self._gauges(told), self.ids(cpu)
        return tuple(
            PrometheusReading(
                id=ids[instance],
                at=round(seen[instance] * SECOND),
                age=max(0, round((asked[instance] - seen[instance]) * SECOND)),
                interval=round(LOOKS_BACK * SECOND / max(1.0, scrapes.get(instance, 1.0))),
                cpu=min(100.0, max(0.0, value)),
                cores=round(counted[instance]) if instance in counted else None,
                gauges=gauges.get(instance, NodeGauges()),
                address=_plain(instance),
            )
            for instance, value in sorted(cpu.items())[:SERVERS_LIMIT]
            if instance in seen
        )

    def past(self, id: str, grid: PrometheusGrid) -> PrometheusHistory:
        """Returns the history of one server. Raises StoreError."""
        mine = self._matcher(id)
        rate = _irate if grid.step <= _EXACT_UP_TO else _rate(max(grid.step, LOOKS_BACK))
        # A rate outlives a server by its lookback; the server's own series end at once.
        there = f"and on ({self._label}) {self._series(CORES, _IDLING, mine)}"
        used = " / ".join(f"sum by ({self._label}) ({self._series(name, mine)})" for name in (AVAILABLE, MEMORY))
        queries = (
            f"{self._busy(rate, mine)} {there}",
            f"100 * (1 - {used})",
            self._max(self._series(LOADS[0], mine)),
        )
        return PrometheusHistory(*(grid.line(rows) for rows in promql.over(self._prometheus.endpoint, queries, grid)))

    def ids(self, instances: Iterable[str]) -> dict[str, str]:
        """Returns the name of each instance: without its port, unless two would then have the same name."""
        short = {one: self._named.get(one) or _plain(one) for one in instances}
        often = Counter(short.values())
        return {one: name if one in self._named or often[name] == 1 else one for one, name in short.items()}

    def _matcher(self, id: str) -> str:
        """Returns the label matcher of the server with this name."""
        exact = next((instance for instance, named in self._named.items() if named == id), None)
        if exact is not None:
            return f"{self._label}={quoted(exact)}"
        return f"{self._label}=~{quoted(re.escape(id) + '(:[0-9]+)?')}"

    def _series(self, name: str, *matchers: str) -> str:
        chosen = (*matchers, self._prometheus.match.strip())
        return f"{name}{{{','.join(matcher for matcher in chosen if matcher)}}}"

    def _max(self, query: str) -> str:
        """Wraps a query in `max by`: replicas of one Prometheus may report a server twice."""
        return f"max by ({self._label}) ({query})"

    def _busy(self, over: _Over, *matchers: str) -> str:
        """Returns the query for the busy percentage of all cores. Every mode that is not idle counts as work."""
        idle = self._series(CORES, f"mode=~{quoted('|'.join(sorted(IDLE)))}", *matchers)
        sums = (f"sum by ({self._label}) ({over(series)})" for series in (idle, self._series(CORES, *matchers)))
        return f"100 * (1 - {' / '.join(sums)})"

    def _told(self) -> str:
        """Returns one query for all gauges, whose series differ by their metric names."""
        mounted = f"mountpoint={quoted(self._prometheus.disk)}"
        gauges = self._any_of((*LOADS, MEMORY, AVAILABLE, HOST))
        # `or` treats series of equal labels as one, whatever their metric name; these two never have equal labels.
        return f"{gauges} or {self._any_of((DISK_SIZE, DISK_FREE), mounted)}"

    def _any_of(self, families: Iterable[str], *matchers: str) -> str:
        return self._series("", f"__name__=~{quoted('|'.join(families))}", *matchers)

    def _values(self, rows: Sequence[PrometheusSeries]) -> dict[str, float]:
        """Returns one value for each server that has a name."""
        found = ((row.labels.get(self._label, ""), row.newest) for row in rows)
        return {instance: value for instance, value in found if 0 < len(instance) <= NAME_LIMIT and value is not None}

    def _times(self, rows: Sequence[PrometheusSeries]) -> dict[str, float]:
        """Returns when Prometheus evaluated each answer."""
        return {row.labels.get(self._label, ""): max(row.values) for row in rows if row.values}

    def _gauges(self, rows: Sequence[PrometheusSeries]) -> dict[str, NodeGauges]:
        values: dict[str, dict[str, float]] = {}
        hosts: dict[str, str] = {}
        for row in rows:
            instance, name = row.labels.get(self._label, ""), row.labels.get("__name__", "")
            if name == HOST:
                hosts[instance] = row.labels.get("nodename", "")
            elif row.newest is not None:
                values.setdefault(instance, {})[name] = row.newest
        return {one: gauges_of_values(values.get(one, {}), hosts.get(one, "")) for one in values.keys() | hosts.keys()}


def _plain(instance: str) -> str:
    """Returns an instance's name without its port."""
    return _PORT.sub("", instance).strip("[]") or instance


def _irate(series: str) -> str:
    return f"irate({series}[{LOOKS_BACK}s])"


def _rate(seconds: int) -> _Over:
    return lambda series: f"rate({series}[{seconds}s])"
