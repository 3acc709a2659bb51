"""One scanner's runs, one at a time: each is written down, and none takes the scheduler with it when it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from recovery import shared_clock
from recovery.domain.refs import QueueRef, unslug
from recovery.domain.scans import Report, Scan
from recovery.errors import UnstallError
from recovery.models import ScanRun
from recovery.scanners.acting.ledger import Ended, Ledger

log = logging.getLogger(__name__)


class Run(Protocol):
    """A scanner at work. None: nothing was due, so there is nothing to tell."""

    def __call__(self, now: int, *, observes: bool = False, queue: QueueRef | None = None) -> Report | None: ...


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody asked for: where, and whether only to look."""

    observes: bool = False
    queue: QueueRef | None = None

    @classmethod
    def of(cls, row: ScanRun) -> Asked:
        queue = QueueRef(row.deployment, unslug(row.base)) if row.base else None
        return cls(row.observes, queue)


class Turn:
    def __init__(self, scan: Scan, run: Run, ledger: Ledger, clock: Callable[[], int] = shared_clock.now) -> None:
        self.scan = scan
        self._run = run
        self._ledger = ledger
        self._clock = clock
        self._trouble = ""
        self.failure: Exception | None = None  # what the last run raised

    def due(self, now: int, next_at: int | None = None) -> Report | None:
        """A run because it is time."""
        return self.run(now, self._ledger.begin(self.scan, now), next_at=next_at)

    def ordered(self, row: ScanRun, now: int, next_at: int | None = None) -> Report | None:
        """A run that somebody asked for; None when another has begun it. Raises django.db.Error."""
        if not self._ledger.take(row, now):
            return None
        row.refresh_from_db()
        return self.run(now, row, Asked.of(row), next_at)

    def run(
        self,
        now: int,
        row: ScanRun | None,
        asked: Asked = Asked(),
        next_at: int | None = None,
    ) -> Report | None:
        """Whoever began it: with the row in which it is written down, when it has one."""
        report, trouble = self._tried(now, asked)
        if report is None and not trouble and row is None:
            return None
        ended = Ended(now, self._clock(), report or Report(), trouble, next_at)
        self._ledger.end(self.scan, row, ended)
        return report

    def _tried(self, now: int, asked: Asked) -> tuple[Report | None, str]:
        self.failure = None
        try:
            report = self._run(now, observes=asked.observes, queue=asked.queue)
        except UnstallError as error:
            self.failure = error
            return None, self._fail(str(error), None)
        except Exception as error:  # noqa: BLE001 -- a scanner's edge: whatever it is, the next run goes on
            self.failure = error
            return None, self._fail(repr(error), error)
        if report is not None:
            self._succeed()
        return report, ""

    def _fail(self, trouble: str, error: Exception | None) -> str:
        """Said once, not once a run."""
        if trouble != self._trouble:
            log.error("%s: %s", self.scan.value, trouble, exc_info=error)
        self._trouble = trouble
        return trouble

    def _succeed(self) -> None:
        if self._trouble:
            log.info("%s: recovered", self.scan.value)
        self._trouble = ""
