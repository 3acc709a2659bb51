"""Reads counters of CPU time, and computes from two of them how busy the machine and our quota of it were."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from recovery.domain.servers.cpu_counters import Cores, percent
from recovery.monitor import procfs
from recovery.monitor.cgroups import Cgroups, Quota

# The columns of a core in /proc/stat. What follows them (guests) is counted in the first two already.
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICKS = os.sysconf("SC_CLK_TCK")
_LEAST = 0.2  # seconds between two samples: the counters move in hundredths
_FULL = 100.0


@dataclass(frozen=True, slots=True)
class CpuShares:
    """CPU usage in percent. `raw`: of the quota; `host`: of the machine."""

    raw: float
    host: float | None


@dataclass(frozen=True, slots=True)
class CpuCounters:
    """CPU counters at one moment; `at` in seconds of the steady clock."""

    at: float
    cores: Cores
    quota: Quota | None = None

    @property
    def count(self) -> int:
        return len(self.cores)

    @property
    def limit(self) -> Quota | None:
        """Quota, if it is less than the cores of the machine."""
        return self.quota if self.quota and self.quota.cores < self.count else None

    def since(self, earlier: CpuCounters) -> CpuShares | None:
        """Returns the usage between two samples; None when they cannot be compared."""
        elapsed = self.at - earlier.at
        if elapsed < _LEAST:
            return None
        host = percent(earlier.cores, self.cores, elapsed)
        if self.limit is None:
            return None if host is None else CpuShares(host, host)
        used = _used(earlier.quota, self.limit)
        if used is None:
            return None
        return CpuShares(min(_FULL, _FULL * used / (elapsed * self.limit.cores)), host)


def read(cgroups: Cgroups, at: float) -> CpuCounters:
    return CpuCounters(at, _cores(), cgroups.quota())


def _used(before: Quota | None, after: Quota) -> float | None:
    """Returns the CPU time used (s); None for counters of another cgroup, or one that was reset."""
    if before is None or before.group != after.group or after.used < before.used:
        return None
    return after.used - before.used


def _cores() -> Cores:
    """Reads the times of each core by the kernel's number: one that is switched off leaves a gap and moves no other."""
    try:
        with (procfs.PROC / "stat").open("rb") as file:
            return dict(_core(line) for line in file.read().splitlines() if line[:3] == b"cpu" and line[3:4].isdigit())
    except (OSError, ValueError):
        every = psutil.cpu_times(percpu=True)
        return {str(number): _told(times._asdict()) for number, times in enumerate(every)}


def _core(line: bytes) -> tuple[str, dict[str, float]]:
    name, *ticks = line.split()
    return name.decode("ascii"), {kind: int(tick) / _TICKS for kind, tick in zip(_KINDS, ticks, strict=False)}


def _told(times: dict[str, float]) -> dict[str, float]:
    return {kind: seconds for kind, seconds in times.items() if kind in _KINDS}
