"""Reads the scanner runs that operators asked for, once for all scanners."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

from recovery.domain.scanners.types import ScannerKind, ScanStatus
from recovery.models import ScanRun
from recovery.scanners.runtime.run_recorder import ScannerRunRecorder

EVERY = 0.5  # seconds: a requested run begins within one
_AT_ONCE = 50


class RunRequests:
    """Requested runs during one term of the leader. `look` is called by one thread, `take` by that of the scanner."""

    def __init__(self, ledger: ScannerRunRecorder) -> None:
        self._ledger = ledger
        self._is_clear = False
        self._lock = Lock()
        self._waiting: dict[ScannerKind, list[ScanRun]] = defaultdict(list)

    def look(self, now: int) -> None:
        """Reads the waiting runs. Raises Error of the database."""
        if not self._is_clear:
            self._ledger.clear(now)
            self._is_clear = True
        known = {scan.value: scan for scan in ScannerKind}
        rows = ScanRun.objects.filter(status=ScanStatus.WAITING, scanner__in=known).order_by("pk")[:_AT_ONCE]
        waiting: dict[ScannerKind, list[ScanRun]] = defaultdict(list)
        for row in rows:
            waiting[known[row.scanner]].append(row)
        with self._lock:
            self._waiting = waiting

    def take(self, scan: ScannerKind) -> list[ScanRun]:
        """Returns the waiting runs of a scanner, oldest first. One that is returned twice is begun once."""
        with self._lock:
            return self._waiting.pop(scan, [])
