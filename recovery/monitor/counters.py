"""The counters of CPU time at one moment, and what two of them say: how busy the machine and our share of it were."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from recovery.domain.cores import Cores, percent
from recovery.monitor import procfs
from recovery.monitor.cgroups import Cgroups, Quota

# The columns of a core in /proc/stat. What follows them (guests) is counted in the first two already.
_KINDS = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_TICKS = os.sysconf("SC_CLK_TCK")
_LEAST = 0.2  # seconds between two looks: counters that move in hundredths say nothing of less
_FULL = 100.0


@dataclass(frozen=True, slots=True)
class Shares:
    """In percent. `raw`: of what we may use."""

    raw: float
    host: float | None


@dataclass(frozen=True, slots=True)
class Counters:
    """`at`: seconds of the steady clock."""

    at: float
    cores: Cores
    quota: Quota | None = None

    @property
    def count(self) -> int:
        return len(self.cores)

    @property
    def limit(self) -> Quota | None:
        """The quota, where it allows less than there is."""
        return self.quota if self.quota and self.quota.cores < self.count else None

    def since(self, earlier: Counters) -> Shares | None:
        """Between two looks; None when they cannot be compared, and the next pair has to tell."""
        elapsed = self.at - earlier.at
        if elapsed < _LEAST:
            return None
        host = percent(earlier.cores, self.cores, elapsed)
        if self.limit is None:
            return None if host is None else Shares(host, host)
        used = _used(earlier.quota, self.limit)
        if used is None:
            return None
        return Shares(min(_FULL, _FULL * used / (elapsed * self.limit.cores)), host)


def read(cgroups: Cgroups, at: float) -> Counters:
    return Counters(at, _cores(), cgroups.quota())


def _used(before: Quota | None, after: Quota) -> float | None:
    """Seconds of CPU; None when it is another group's counter, or one that began anew."""
    if before is None or before.group != after.group or after.used < before.used:
        return None
    return after.used - before.used


def _cores() -> Cores:
    """By the names that the kernel gives them: one that is switched off leaves a gap and moves no other."""
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
