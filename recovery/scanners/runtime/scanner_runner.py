"""Runs one scanner, one run at a time: each run is recorded, and a failed run does not end the scheduler."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef, unslug
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.errors import UnstallError
from recovery.models import ScanRun
from recovery.scanners.runtime.run_recorder import EndedScannerRun, ScannerRunRecorder

log = logging.getLogger(__name__)


class ScannerFunction(Protocol):
    """Run function of a scanner. It returns None if nothing was due, so that there is nothing to report."""

    def __call__(self, now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport | None: ...


@dataclass(frozen=True, slots=True)
class ScannerRunRequest:
    """Requested run: its queue, and whether it is a dry run."""

    dry_run: bool = False
    queue: QueueRef | None = None

    @classmethod
    def of(cls, row: ScanRun) -> ScannerRunRequest:
        queue = QueueRef(row.deployment, unslug(row.base)) if row.base else None
        return cls(row.dry_run, queue)


class ScannerRunner:
    def __init__(
        self,
        scan: ScannerKind,
        run: ScannerFunction,
        ledger: ScannerRunRecorder,
        clock: Callable[[], int] = shared_clock.now,
    ) -> None:
        self.scan = scan
        self._run = run
        self._ledger = ledger
        self._clock = clock
        self._trouble = ""
        self.failure: Exception | None = None  # what the last run raised

    def due(self, now: int, next_at: int | None = None) -> ScannerReport | None:
        """Makes a scheduled run."""
        return self.run(now, self._ledger.begin(self.scan, now), next_at=next_at)

    def ordered(self, row: ScanRun, now: int, next_at: int | None = None) -> ScannerReport | None:
        """Makes a requested run; None if another process has begun it. Raises django.db.Error."""
        if not self._ledger.take(row, now):
            return None
        row.refresh_from_db()
        return self.run(now, row, ScannerRunRequest.of(row), next_at)

    def run(
        self,
        now: int,
        row: ScanRun | None,
        asked: ScannerRunRequest = ScannerRunRequest(),
        next_at: int | None = None,
    ) -> ScannerReport | None:
        """Makes a run, scheduled or requested, and records its end in its row, if it has one."""
        report, trouble = self._tried(now, asked)
        if report is None and not trouble and row is None:
            return None
        ended = EndedScannerRun(now, self._clock(), report or ScannerReport(), trouble, next_at)
        self._ledger.end(self.scan, row, ended)
        return report

    def _tried(self, now: int, asked: ScannerRunRequest) -> tuple[ScannerReport | None, str]:
        self.failure = None
        try:
            report = self._run(now, dry_run=asked.dry_run, queue=asked.queue)
        except UnstallError as error:
            self.failure = error
            return None, self._fail(str(error), None)
        except Exception as error:  # noqa: BLE001 -- a scanner's edge: after any error the next run goes on
            self.failure = error
            return None, self._fail(repr(error), error)
        if report is not None:
            self._succeed()
        return report, ""

    def _fail(self, trouble: str, error: Exception | None) -> str:
        """Logs a failure once, not at every run."""
        if trouble != self._trouble:
            log.error("%s: %s", self.scan.value, trouble, exc_info=error)
        self._trouble = trouble
        return trouble

    def _succeed(self) -> None:
        if self._trouble:
            log.info("%s: recovered", self.scan.value)
        self._trouble = ""
