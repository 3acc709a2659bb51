"""Reads the CPU quota of this container or unit, and the CPU time that it used: cgroups, version 1 and 2.

A limit may be set on our own cgroup or on any above it; the smallest one counts. One that limits only the monitor (a
unit with a CPUQuota of its own, a container beside the workers') says nothing about the workers and is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from recovery.monitor import procfs

_STARTERS = frozenset({"tini", "dumb-init", "docker-init", "catatonit", "conmon", "s6-svscan", "sh", "bash", "dash"})
_LIMIT = 65_536  # bytes of a file: a cgroup with more members is not only ours


@dataclass(frozen=True, slots=True)
class Quota:
    """CPU quota of a cgroup, and its CPU time used (s). Only values of the same `group` can be compared."""

    group: str
    cores: float
    used: float


@dataclass(frozen=True, slots=True)
class Cgroups:
    """Directories of our own cgroup and of those above it: of the limits, and of the CPU time used."""

    version: int
    limits: tuple[Path, ...] = ()
    accounts: tuple[Path, ...] = ()

    @classmethod
    def find(cls, own: Path = procfs.PROC / "self") -> Cgroups:
        """Finds the cgroup directories of this process. `own` is our directory in /proc."""
        mounts, members = _mounts(_text(own / "mountinfo")), _members(_text(own / "cgroup"))
        if "cpu" in mounts and "cpu" in members:
            limits = _levels(mounts["cpu"], members["cpu"])
            accounts = _levels(mounts.get("cpuacct", mounts["cpu"]), members.get("cpuacct", members["cpu"]))
            return cls(1, limits, accounts)
        if "" in mounts and "" in members:
            limits = _levels(mounts[""], members[""])
            return cls(2, limits, limits)
        return cls(0)

    def quota(self) -> Quota | None:
        """Returns the smallest limit that applies to the workers; None when there is none."""
        shared = list(self._shared())
        found = [(cores, account) for limit, account in shared if (cores := self._cores(limit)) is not None]
        if not found:
            return None
        cores, account = min(found, key=lambda one: one[0])
        used = self._used(account)
        return None if used is None else Quota(str(account), cores, used)

    def _shared(self) -> Iterator[tuple[Path, Path]]:
        """Yields the levels from the first one on that has other processes too."""
        levels = list(zip(self.limits, self.accounts, strict=False))
        ours, below = _ours(), None
        while levels and _is_alone(levels[0][0], below, ours):
            below = levels.pop(0)[0]
        yield from levels

    def _cores(self, level: Path) -> float | None:
        if self.version == 1:
            quota, period = _text(level / "cpu.cfs_quota_us"), _text(level / "cpu.cfs_period_us")
        else:
            quota, _, period = _text(level / "cpu.max").partition(" ")
        try:
            cores = int(quota) / int(period)
        except (ValueError, ZeroDivisionError):  # "max", or no such file: no limit
            return None
        return cores if cores > 0 else None

    def _used(self, level: Path) -> float | None:
        try:
            if self.version == 1:
                return int(_text(level / "cpuacct.usage")) / 1e9
            rows = dict(line.split() for line in _text(level / "cpu.stat").splitlines())
            return int(rows["usage_usec"]) / 1e6
        except (ValueError, KeyError):
            return None


def _mounts(table: str) -> dict[str, tuple[str, Path]]:
    """Returns controller → root and directory of its mount; "" is version 2."""
    found: dict[str, tuple[str, Path]] = {}
    for line in table.splitlines():
        left, _, right = line.partition(" - ")
        place, kind = left.split(), right.split()
        if len(place) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        for name in kind[2].split(",") if kind[0] == "cgroup" else [""]:
            found.setdefault(name, (place[3], Path(place[4])))
    return found


def _members(table: str) -> dict[str, str]:
    """Returns controller → our cgroup."""
    rows = (line.split(":", 2) for line in table.splitlines() if line.count(":") >= 2)
    return {name: path for number, names, path in rows for name in (names.split(",") if number != "0" else [""])}


def _levels(mount: tuple[str, Path], path: str) -> tuple[Path, ...]:
    """Returns the directories from our own up to the mount point. Levels above it, and their limits, are hidden."""
    root, directory = mount
    root = root.rstrip("/")
    inner = path.removeprefix(root).strip("/") if path == root or path.startswith(f"{root}/") else ""
    own = directory / inner
    if ".." in inner.split("/") or not own.is_dir():
        own = directory
    above = own.relative_to(directory).parts
    return tuple(directory.joinpath(*above[:depth]) for depth in range(len(above), -1, -1))


def _is_alone(level: Path, below: Path | None, ours: frozenset[int]) -> bool:
    """Returns True if no other process is in this cgroup or in one inside."""
    try:
        members = {int(pid) for pid in _text(level / "cgroup.procs").split()}
        with os.scandir(level) as entries:
            inside = any(entry.is_dir(follow_symlinks=False) and entry.path != str(below) for entry in entries)
    except (OSError, ValueError):
        return False
    return members <= ours and not inside and bool(members or below)


def _ours() -> frozenset[int]:
    """Returns our pid and those of parents that only started us, as tini or a shell."""
    found, pid = {os.getpid()}, os.getppid()
    while pid > 0 and (stat := procfs.stat(pid)) and stat.name in _STARTERS:
        found.add(pid)
        pid = stat.parent
    return frozenset(found)


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_LIMIT).decode("utf-8", "replace").strip()
    except OSError:
        return ""
