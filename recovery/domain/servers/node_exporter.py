"""Reads the metrics of a node_exporter: CPU counters and gauges, and the CPU usage between two readings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from math import isfinite

from recovery.domain.servers import cpu_counters

CORES = "node_cpu_seconds_total"
HOST = "node_uname_info"
DISK_SIZE, DISK_FREE = "node_filesystem_size_bytes", "node_filesystem_free_bytes"
LOADS = ("node_load1", "node_load5", "node_load15")
MEMORY, AVAILABLE = "node_memory_MemTotal_bytes", "node_memory_MemAvailable_bytes"
FAMILIES = frozenset({CORES, HOST, DISK_SIZE, DISK_FREE, MEMORY, AVAILABLE, *LOADS})
_HOST_LIMIT = 255  # characters of a name

Labels = Mapping[str, str]
Sample = tuple[str, Labels, float]  # name, labels, value


@dataclass(frozen=True, slots=True)
class NodeGauges:
    """Current values of a node. Bytes; None: not exported."""

    host: str = ""
    load1: float | None = None
    load5: float | None = None
    load15: float | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    disk_used: int | None = None
    disk_total: int | None = None


@dataclass(frozen=True, slots=True)
class NodeReading:
    """Reading of a node. `cores`: core → mode → seconds since the machine started."""

    gauges: NodeGauges
    cores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeProblem:
    """Reason why a node, or with an id of "" the Prometheus, cannot be read; shown on its card."""

    id: str
    target: str
    says: str
    advice: str
    since: int


def read_samples(samples: Iterable[Sample], disk: str) -> NodeReading:
    """Builds a reading from samples. `disk` is a mount point."""
    gauges: dict[str, float] = {}
    cores: dict[str, dict[str, float]] = {}
    host = ""
    for name, labels, value in samples:
        if not isfinite(value) or value < 0:
            continue
        if name == CORES:
            cores.setdefault(labels.get("cpu", ""), {})[labels.get("mode", "")] = value
        elif name == HOST:
            host = labels.get("nodename", "")
        elif name not in (DISK_SIZE, DISK_FREE) or labels.get("mountpoint") == disk:
            gauges[name] = value
    return NodeReading(gauges_of_values(gauges, host), cores)


def gauges_of_values(found: Mapping[str, float], host: str = "") -> NodeGauges:
    """Builds gauges from values by the names of their metric families."""
    load1, load5, load15 = (found.get(name) for name in LOADS)
    return NodeGauges(
        host[:_HOST_LIMIT],
        load1,
        load5,
        load15,
        mem_used=_used(found, MEMORY, AVAILABLE),
        mem_total=_whole(found.get(MEMORY)),
        disk_used=_used(found, DISK_SIZE, DISK_FREE),
        disk_total=_whole(found.get(DISK_SIZE)),
    )


def percent(before: NodeReading, after: NodeReading, elapsed: float | None = None) -> float | None:
    """Returns how busy all cores were between two readings, so many seconds apart; None when that is not known."""
    return cpu_counters.percent(before.cores, after.cores, elapsed)


def encode(troubles: Iterable[NodeProblem]) -> bytes:
    return json.dumps([asdict(trouble) for trouble in troubles]).encode()


def decode(packed: object) -> tuple[NodeProblem, ...]:
    """Parses stored problems. Returns an empty tuple for nothing, and for what another version wrote."""
    try:
        return tuple(NodeProblem(**row) for row in json.loads(packed)) if isinstance(packed, bytes) else ()
    except (ValueError, TypeError, RecursionError):
        return ()


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _used(found: Mapping[str, float], total: str, free: str) -> int | None:
    if total not in found or free not in found:
        return None
    return round(max(0.0, found[total] - found[free]))
