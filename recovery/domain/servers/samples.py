"""Defines a server's latest sample as its monitor sent it: CPU, memory, load, disk, worker processes, and leftover
children.

Percentages are of the whole server (0 to 100) but for a process's CPU, which is of one core. None means: not known.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, fields
from enum import StrEnum
from typing import Any, TypeVar

from recovery.domain.identifiers import decode_name, slug

ROWS_LIMIT = 200  # processes of a server that are read; a monitor tells of fewer
TEXTS_LIMIT = 5_000  # addresses, sockets or files
_LARGEST = 1 << 63
_LARGEST_SHARE = 1e9
FORMAT = "2"  # of the fields; a reader that knows another number shows nothing rather than something wrong


class SampleOrigin(StrEnum):
    """Source of a measurement."""

    MONITOR = "worker-monitor"
    EXPORTER = "node-exporter"
    PROMETHEUS = "prometheus"
    LOCAL = "local"  # the web process, for itself


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """A worker process. `sockets`: its own ends of connections, as CLIENT LIST writes addresses."""

    pid: int
    name: str
    command: str  # redacted and cut
    started_at: int
    cpu: float | None = None
    memory: int | None = None
    sockets: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LeftoverProcess:
    """Child process that outlived its worker process."""

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
    """Newest sample of one server."""

    id: str
    host: str
    sampled_at: int
    poll: int  # ms between two samples
    origin: SampleOrigin = SampleOrigin.MONITOR
    started_at: int | None = None  # of the monitor
    cpu_raw: float | None = None  # of what it may use: its quota when it has one, else all cores
    cpu_ema: float | None = None
    cpu_host: float | None = None  # of all cores, by any process
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
    processes: tuple[ServerProcess, ...] = ()
    strays: tuple[LeftoverProcess, ...] = ()
    left_out: int = 0  # processes beyond those that are listed

    @property
    def cpu(self) -> float | None:
        """Returns the CPU that counts: the higher of now and the average."""
        known = [value for value in (self.cpu_raw, self.cpu_ema) if value is not None]
        return max(known, default=None)

    def encode(self) -> dict[str, str]:
        """Returns the fields of its hash; unknown ones are left out."""
        told = {name: getattr(self, name) for name in _PLAIN}
        written = {name: str(value) for name, value in told.items() if value is not None}
        lists = {name: json.dumps([astuple(one) for one in getattr(self, name)]) for name in ("processes", "strays")}
        return {"format": FORMAT, "id": slug(self.id), **written, "addresses": json.dumps(self.addresses), **lists}


_Row = TypeVar("_Row", ServerProcess, LeftoverProcess)


def decode_server(id: str, hashed: Mapping[bytes, bytes]) -> Server | None:
    """Parses the hash. Returns None for nothing, for another version's, and for one written under another's name."""
    said = {decode_name(name): decode_name(value) for name, value in hashed.items()}
    if said.pop("format", "") != FORMAT or said.pop("id", None) != slug(id):
        return None
    try:
        plain = {name: _PLAIN[name](said[name]) for name in _PLAIN if name in said}
        return Server(
            id=id,
            **plain,
            addresses=_texts(json.loads(said["addresses"])),
            processes=_rows(ServerProcess, said["processes"]),
            strays=_rows(LeftoverProcess, said["strays"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None


def _rows(kind: type[_Row], written: str) -> tuple[_Row, ...]:
    """Parses rows; raises what `decode` catches. Only the first ROWS_LIMIT are read, more than a monitor sends."""
    readers = [_READERS[str(field.type)] for field in fields(kind)]
    listed = json.loads(written)[:ROWS_LIMIT]
    return tuple(kind(*[read(value) for read, value in zip(readers, row, strict=True)]) for row in listed)


def _whole(value: Any) -> int:
    """Parses a count or a moment, also from text."""
    number = int(value) if isinstance(value, str) else value
    if type(number) is not int or not 0 <= number < _LARGEST:
        raise ValueError(f"{type(value).__name__} is no count")
    return number


def _share(value: Any) -> float:
    """Parses a percentage, a load or a number of cores, also from text; one that can be compared and drawn."""
    number = float(value) if isinstance(value, str) else value
    if type(number) not in (int, float) or not abs(number) < _LARGEST_SHARE:
        raise ValueError(f"{type(value).__name__} is no share")
    return float(number)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    value.encode("utf-8", "surrogateescape")  # JSON may hold halves of characters, which nothing can show
    return value


def _texts(written: Any) -> tuple[str, ...]:
    if not isinstance(written, list):
        raise TypeError("no list")
    return tuple(map(_text, written[:TEXTS_LIMIT]))


def _or_none(read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else read(value)


# By the types of the fields as they are written above. A monitor may write anything: what is of another type, not
# finite or beyond all measure would break every page that shows this server beside others.
_READERS: dict[str, Callable[[Any], Any]] = {
    "int": _whole,
    "int | None": _or_none(_whole),
    "float | None": _or_none(_share),
    "str": _text,
    "SampleOrigin": SampleOrigin,
    "tuple[str, ...]": _texts,
}
_PLAIN: dict[str, Callable[[Any], Any]] = {
    field.name: _READERS[str(field.type)]
    for field in fields(Server)
    if field.name not in ("id", "addresses", "processes", "strays")
}
FIELDS = ("format", "id", *_PLAIN, "addresses", "processes", "strays")  # of its hash
