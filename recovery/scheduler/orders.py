"""Runs of scanners that somebody asked for, looked up once for all scanners."""

from __future__ import annotations

from collections import defaultdict
from threading import Lock

from recovery.domain.scans import Scan, ScanStatus
from recovery.models import ScanRun
from recovery.scanners.acting.ledger import Ledger

EVERY = 0.5  # seconds: an order begins within one
_AT_ONCE = 50


class Orders:
    """Of one term. `look` is called by one thread, `take` by that of the scanner."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._is_clear = False
        self._lock = Lock()
        self._waiting: dict[Scan, list[ScanRun]] = defaultdict(list)

    def look(self, now: int) -> None:
        """Raises Error of the database."""
        if not self._is_clear:
            self._ledger.clear(now)
            self._is_clear = True
        known = {scan.value: scan for scan in Scan}
        rows = ScanRun.objects.filter(status=ScanStatus.WAITING, scanner__in=known).order_by("pk")[:_AT_ONCE]
        waiting: dict[Scan, list[ScanRun]] = defaultdict(list)
        for row in rows:
            waiting[known[row.scanner]].append(row)
        with self._lock:
            self._waiting = waiting

    def take(self, scan: Scan) -> list[ScanRun]:
        """What waits for it, oldest first. One that is offered twice is begun once."""
        with self._lock:
            return self._waiting.pop(scan, [])
