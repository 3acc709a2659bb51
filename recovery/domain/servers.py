"""A server as its monitor told of it last: CPU, memory, load, disk, its worker processes, and what dead ones left.

Percentages are of the whole server (0 to 100) but for a process's CPU, which is of one core. None is: not known.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from typing import Any

from recovery.domain.refs import slug, text

FORMAT = "2"  # of the fields; a reader that knows another number shows nothing rather than something wrong


class Origin(StrEnum):
    """Who measured."""

    MONITOR = "worker-monitor"
    EXPORTER = "node-exporter"
    PROMETHEUS = "prometheus"
    LOCAL = "local"  # the web process, for itself


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process. `sockets`: its own ends of connections, as CLIENT LIST writes addresses."""

    pid: int
    name: str
    command: str  # redacted and cut
    started_at: int
    cpu: float | None = None
    memory: int | None = None
    sockets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Stray:
    """A child of a worker process that outlived it."""

    pid: int
    name: str
    command: str  # redacted and cut
    started_at: int
    parent: str  # the command of the worker it belonged to
    since: int  # when its worker was first seen gone
    cpu: float | None = None
    memory: int | None = None
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Server:
    """The newest sample of one server."""

    id: str
    host: str
    sampled_at: int
    poll: int  # ms between two samples
    origin: Origin = Origin.MONITOR
    started_at: int | None = None  # of the monitor
    cpu_raw: float | None = None  # of what it may use: its quota when it has one, else all cores
    cpu_ema: float | None = None
    cpu_host: float | None = None  # of all cores, whoever uses them
    cores: float | None = None  # that it may use
    quota: float | None = None  # cores, when a cgroup limits them
    load1: float | None = None
    load5: float | None = None
    load15: float | None = None
    mem_used: int | None = None
    mem_total: int | None = None
    disk_used: int | None = None
    disk_total: int | None = None
    addresses: tuple[str, ...] = ()  # of the machine, to find the server of a connection
    processes: tuple[Process, ...] = ()
    strays: tuple[Stray, ...] = ()
    left_out: int = 0  # processes beyond those that are listed

    @property
    def cpu(self) -> float | None:
        """What counts: the higher of now and the average."""
        known = [value for value in (self.cpu_raw, self.cpu_ema) if value is not None]
        return max(known, default=None)

    def encode(self) -> dict[str, str]:
        """The fields of its hash; unknown ones are left out."""
        told = {name: getattr(self, name) for name in _PLAIN}
        written = {name: str(value) for name, value in told.items() if value is not None}
        lists = {name: json.dumps([astuple(one) for one in getattr(self, name)]) for name in ("processes", "strays")}
        return {"format": FORMAT, "id": slug(self.id), **written, "addresses": json.dumps(self.addresses), **lists}


def decode(id: str, hashed: Mapping[bytes, bytes]) -> Server | None:
    """None for nothing, for what another version wrote, and for what a server wrote under another's name."""
    said = {text(name): text(value) for name, value in hashed.items()}
    if said.pop("format", "") != FORMAT or said.pop("id", None) != slug(id):
        return None
    try:
        plain = {name: _PLAIN[name](said[name]) for name in _PLAIN if name in said}
        return Server(
            id=id,
            **plain,
            addresses=_texts(json.loads(said["addresses"])),
            processes=tuple(Process(**_named(_PROCESS, row)) for row in json.loads(said["processes"])),
            strays=tuple(Stray(**_named(_STRAY, row)) for row in json.loads(said["strays"])),
        )
    except (KeyError, TypeError, ValueError, IndexError, RecursionError):
        return None


def _named(names: Sequence[str], row: list[Any]) -> dict[str, Any]:
    """A row as it was written; its last column is a list of texts."""
    return dict(zip(names, [*row[:-1], _texts(row[-1])], strict=True))


def _texts(written: Any) -> tuple[str, ...]:
    return tuple(str(one) for one in written)


_PROCESS = [field.name for field in fields(Process)]
_STRAY = [field.name for field in fields(Stray)]
_KINDS: dict[str, Any] = {"host": str, "origin": Origin}
_FLOATS = ("cpu_raw", "cpu_ema", "cpu_host", "cores", "quota", "load1", "load5", "load15")
_PLAIN: dict[str, Any] = {
    field.name: _KINDS.get(field.name, float if field.name in _FLOATS else int)
    for field in fields(Server)
    if field.name not in ("id", "addresses", "processes", "strays")
}
FIELDS = ("format", "id", *_PLAIN, "addresses", "processes", "strays")  # of its hash
