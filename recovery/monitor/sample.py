"""What the machine does right now: CPU, load, memory. The counters are our own: nobody else's reading resets them."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

IDLE = ("idle", "iowait")  # a core that waits for its disk could still compute
COUNTED_TWICE = ("guest", "guest_nice")  # the kernel has them in `user` and `nice` already


@dataclass(frozen=True, slots=True)
class Clock:
    """The CPU time of all cores since the start of the machine, in seconds."""

    busy: float
    total: float

    @classmethod
    def read(cls) -> Clock:
        times = psutil.cpu_times()._asdict()
        total = sum(seconds for kind, seconds in times.items() if kind not in COUNTED_TWICE)
        return cls(total - sum(times.get(kind, 0.0) for kind in IDLE), total)

    def percent_since(self, earlier: Clock) -> float | None:
        """Busy share of all cores together; None when no time has passed or the counters went back."""
        total, busy = self.total - earlier.total, self.busy - earlier.busy
        return None if total <= 0 or busy < 0 else min(100.0, 100.0 * busy / total)


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the machine. The CPU is told apart: it needs two looks."""

    cores: int
    load1: float
    load5: float
    load15: float
    mem_used: int
    mem_total: int

    @classmethod
    def take(cls) -> Sample:
        memory = psutil.virtual_memory()
        # `used` differs from system to system; what is not available is used.
        used = memory.total - memory.available
        return cls(os.cpu_count() or 1, *psutil.getloadavg(), mem_used=used, mem_total=memory.total)
