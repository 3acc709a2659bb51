"""Computes how busy a machine was between two readings of its per-core CPU counters.

Counters of a restarted machine begin at zero again, an added core brings what it counted before, and some hypervisors
let a counter jump by years. Impossible values are left out, core by core.
"""

from __future__ import annotations

from collections.abc import Mapping

Cores = Mapping[str, Mapping[str, float]]  # core → what it did → seconds since the machine started

IDLE = frozenset({"idle", "iowait"})  # a core that waits for its disk could still compute
_TOO_FAST = 2.0  # seconds that a core may count in one; ticks are coarse and the looks not quite as far apart
_SLACK = 1.0  # seconds


def percent(before: Cores, after: Cores, elapsed: float | None = None) -> float | None:
    """Returns the busy share of all cores together, 0 to 100; None when no core has plausible counters.

    A core that was not there before counts from the next reading on. A single counter that falls a little (Linux lets
    `iowait` do so) did not move.
    """
    busy = idle = 0.0
    for core, now in after.items():
        then = before.get(core)
        if then is None or sum(now.values()) < sum(then.values()):
            continue
        moved = {kind: max(0.0, now[kind] - then[kind]) for kind in now.keys() & then.keys()}
        if elapsed is not None and sum(moved.values()) > elapsed * _TOO_FAST + _SLACK:
            continue
        rested = sum(moved[kind] for kind in IDLE & moved.keys())
        idle += rested
        busy += sum(moved.values()) - rested
    return min(100.0, 100.0 * busy / (busy + idle)) if busy + idle > 0 else None
