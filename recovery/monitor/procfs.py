"""Reads processes from /proc, cheaply, because it is done for every process of the machine.

A process may end between any two reads, and most belong to other users: what cannot be read is None or empty.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_KERNEL_THREAD = 0x00200000  # PF_KTHREAD
_DEAD = frozenset("ZXx")
_COMMAND_LIMIT = 4_096  # bytes of a command line
_FILES_LIMIT = 4_096  # open files of a process that are read
_TABLE_LIMIT = 8 << 20  # bytes of a table of connections: about 50,000 of them
_DIRECTORY = os.O_DIRECTORY


@dataclass(frozen=True, slots=True)
class Stat:
    """A process at one moment. `started` tells it from an earlier one with the same pid."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    is_kernel: bool
    cpu: float  # seconds, of all its threads
    started: float  # seconds since the machine started
    memory: int  # bytes

    @property
    def is_dead(self) -> bool:
        """Returns True if it has ended and its parent has not reaped it yet."""
        return self.state in _DEAD


def pids() -> list[int]:
    """Returns all pids; empty where there is no /proc."""
    try:
        return [int(name) for name in os.listdir(PROC) if name.isdigit()]  # noqa: PTH208 -- half the price of a Path
    except OSError:
        return []


def stat(pid: int) -> Stat | None:
    try:
        return _stat(pid, _read(pid, "stat"))
    except (OSError, ValueError, IndexError):
        return None


def command(pid: int) -> tuple[str, ...]:
    """Returns the arguments of its command line; none for kernel threads."""
    try:
        raw = _read(pid, "cmdline", _COMMAND_LIMIT)
    except OSError:
        return ()
    return tuple(word.decode("utf-8", "replace") for word in raw.rstrip(b"\0").split(b"\0")) if raw else ()


def cgroup(pid: int) -> bytes:
    try:
        return _read(pid, "cgroup")
    except OSError:
        return b""


def links(pid: int) -> Iterator[tuple[str, str]]:
    """Yields its open files, as number and name; only its own user and root may read them."""
    try:
        with os.scandir(f"{PROC}/{pid}/fd") as entries:
            for _, entry in zip(range(_FILES_LIMIT), entries, strict=False):
                try:
                    yield entry.name, os.readlink(entry.path)  # noqa: PTH115 -- as above
                except OSError:
                    continue
    except OSError:
        return


def is_directory(pid: int, number: str) -> bool:
    """Returns True if an open file is a directory, by its flags: its disk, which may hang, is not read."""
    try:
        flags = next(line for line in _read(pid, f"fdinfo/{number}").splitlines() if line.startswith(b"flags:"))
        return bool(int(flags.split()[1], 8) & _DIRECTORY)
    except (OSError, ValueError, IndexError, StopIteration):
        return False


def network(pid: int) -> int:
    """Returns the inode of its network namespace; 0 when it cannot be read."""
    try:
        return os.stat(f"{PROC}/{pid}/ns/net").st_ino  # noqa: PTH116 -- as above
    except OSError:
        return 0


def connections(pid: int, version: str) -> bytes:
    """Returns the table `tcp` or `tcp6` of its network namespace."""
    try:
        return _read(pid, f"net/{version}", _TABLE_LIMIT)
    except OSError:
        return b""


def _read(pid: int, name: str, limit: int = 65_536) -> bytes:
    """Reads a file of /proc by os.read: Python's open() costs four times as much."""
    file = os.open(f"{PROC}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts, left = [], limit
        while left > 0 and (part := os.read(file, min(left, 65_536))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.close(file)


def _stat(pid: int, raw: bytes) -> Stat:
    """Parses /proc/PID/stat. The name is in brackets and may contain brackets and spaces; the rest is numbers."""
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    return Stat(
        pid=pid,
        name=head.partition(b"(")[2].decode("utf-8", "replace"),
        state=fields[0].decode("ascii"),
        parent=int(fields[1]),
        group=int(fields[2]),
        session=int(fields[3]),
        is_kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        started=int(fields[19]) / _TICKS,
        memory=int(fields[21]) * _PAGE,
    )
