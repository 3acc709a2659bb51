"""Writes the families about servers: the samples of their monitors, and their gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isfinite

from dashboard.metrics.exposition import Lines, MetricFamily
from dashboard.metrics.labels import format_labels
from dashboard.metrics.scrape_input import ScrapeInput
from recovery.domain.gate.state_machine import Gate, GateState
from recovery.domain.servers.samples import Server

GATE = MetricFamily("unstall_gate_open", "1 while heavy work may start on a server, 0 while it may not.")
_KNOWN = (GateState.OPEN, GateState.CLOSED)
_PERCENT = 100


def families(picture: ScrapeInput) -> Iterator[Lines]:
    if picture.health.error:
        return
    rows = [(format_labels(server=server.id), server) for server in picture.image.servers]
    for family, value in _OF_SERVERS.items():
        known = [(labels, value(server)) for labels, server in rows]
        yield family, [family.of(labels, told) for labels, told in known if told is not None and isfinite(told)]
    gates = [gate for gate in picture.image.gates.values() if _is_known(gate, picture.now)]
    yield GATE, [GATE.of(format_labels(server=gate.server), int(gate.state is GateState.OPEN)) for gate in gates]


def _is_known(gate: Gate, now: int) -> bool:
    return gate.state in _KNOWN and gate.sample is not None and gate.sample.is_fresh(now)


def _ratio(percent: float | None) -> float | None:
    return None if percent is None else round(percent / _PERCENT, 4)


_OF_SERVERS: Mapping[MetricFamily, Callable[[Server], float | None]] = {
    MetricFamily(
        "unstall_server_sample_timestamp_seconds", "Time of the last measurement of a server.", unit="seconds"
    ): lambda server: server.sampled_at / 1000,
    MetricFamily(
        "unstall_server_cpu_raw_ratio", "CPU in use, as a share of the CPU available to the server.", unit="ratio"
    ): lambda server: _ratio(server.cpu_raw),
    MetricFamily(
        "unstall_server_cpu_smoothed_ratio", "CPU in use, smoothed: it rises fast and falls slowly.", unit="ratio"
    ): lambda server: _ratio(server.cpu_ema),
    MetricFamily("unstall_server_cores", "Cores that a server may use."): lambda server: server.cores,
    MetricFamily("unstall_server_load1", "Load of the last minute."): lambda server: server.load1,
    MetricFamily("unstall_server_memory_used_bytes", "Memory in use.", unit="bytes"): lambda server: server.mem_used,
    MetricFamily("unstall_server_memory_total_bytes", "Total memory.", unit="bytes"): lambda server: server.mem_total,
    MetricFamily("unstall_server_disk_used_bytes", "Disk in use.", unit="bytes"): lambda server: server.disk_used,
    MetricFamily("unstall_server_disk_total_bytes", "Total disk.", unit="bytes"): lambda server: server.disk_total,
    MetricFamily("unstall_server_worker_processes", "Worker processes on a server."): lambda server: (
        len(server.processes) + server.left_out
    ),
    MetricFamily(
        "unstall_server_stray_processes", "Orphaned processes on a server: they outlived their worker."
    ): lambda server: len(server.strays),
}
