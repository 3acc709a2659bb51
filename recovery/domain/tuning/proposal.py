"""Proposes a better timing; it changes no more than a finding asks for.

The goal is a job that is back within about 45 s, by a lock of 30 s and a check every 15 s; six renewals in a lock, so
that five may come late; a shutdown that waits as long as a recovery would take; and a grace period that leaves 15 s.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from recovery.domain.tuning.timing import WorkerTiming

LOCK = 30.0
STALLED_INTERVAL = 15.0
ABOUT = LOCK + STALLED_INTERVAL  # seconds; a longer recovery is reported
SLOW = 60.0  # seconds; a longer one is reported with a higher severity
RENEWALS = 6  # in one lock
ENOUGH_RENEWALS = 3  # with fewer, not even one may come late
PRE_STOP = 5.0
MARGIN = 15.0  # seconds between the application's own end and SIGKILL
NARROW = 5.0  # a margin below this is no margin


def propose_timing(timing: WorkerTiming, *, has_pre_stop: bool) -> WorkerTiming:
    """Returns the proposed timing. `has_pre_stop`: the platform can pause before SIGTERM."""
    lock, interval = timing.lock, timing.stalled_interval
    if interval <= 0 or max(lock, interval) + interval > ABOUT:
        lock, interval = min(lock, LOCK), min(interval or STALLED_INTERVAL, STALLED_INTERVAL)
    is_kept = lock == timing.lock and timing.renew * ENOUGH_RENEWALS <= lock
    renew = timing.renew if is_kept else min(timing.renew, lock / RENEWALS)
    better = replace(timing, lock=lock, renew=renew, stalled_interval=interval)
    return _stopped(better, has_pre_stop=has_pre_stop)


def _stopped(timing: WorkerTiming, *, has_pre_stop: bool) -> WorkerTiming:
    pause = timing.pre_stop or (PRE_STOP if has_pre_stop else 0.0)
    if timing.shutdown is None:
        return replace(timing, pre_stop=pause)
    # Whole seconds: a pod's grace period and n8n's old variable take nothing else.
    shutdown = max(timing.shutdown, ceil(max(timing.lock, timing.stalled_interval) + timing.stalled_interval))
    if timing.grace is None:
        return replace(timing, pre_stop=pause, shutdown=shutdown)
    is_enough = timing.grace - pause - shutdown >= NARROW
    grace = timing.grace if is_enough else ceil(pause + shutdown + MARGIN)
    return replace(timing, pre_stop=pause, shutdown=shutdown, grace=grace)
