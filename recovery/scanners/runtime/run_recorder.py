"""Records the runs of the scanners.

Every run is written to the state store as its scanner's last run. The database gets the runs of scanners that run
rarely and, of the frequent ones, those that changed something, were refused something, failed or were blocked anew,
or were requested.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error, transaction

from recovery.domain.audit.hash_chain import canonical, job_key
from recovery.domain.identifiers import printable
from recovery.domain.scanners.types import ScannerFinding, ScannerKind, ScannerReport, ScanStatus
from recovery.errors import ConfigError, StoreError
from recovery.models import ScanFind, ScanRun
from recovery.reads.scanners import last_runs
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

FINDS = 1_000  # recorded of one run, changed jobs first: the run's own numbers count all of them
PATIENCE = 10 * 60_000  # ms that a requested run waits for a scheduler: an older request is no longer expected
NOBODY_CAME = "No scheduler started it within ten minutes. Start it again."
CUT_OFF = "The scheduler that ran it stopped before the run finished."
_BATCH = 500
_SAID = 1_000  # characters of a sentence
_HOLDS = 20  # sentences of one run


@dataclass(frozen=True, slots=True)
class EndedScannerRun:
    """Run that has ended. `trouble` "": it did not raise."""

    began: int
    at: int
    report: ScannerReport
    trouble: str = ""
    next_at: int | None = None

    @property
    def has_succeeded(self) -> bool:
        """True if it read something, or nothing was unreadable, and if the store refused it no permission."""
        return not self.trouble and not self.report.is_refused and self.report.has_looked

    @property
    def said(self) -> str:
        return _text(self.trouble or " ".join(self.report.faults))


class ScannerRunRecorder:
    """Recorder of one term, whose number is `epoch`; None: the leader is unknown.

    Scanners run in parallel, each in a thread of its own; no two touch the same scanner. What cannot be recorded
    is logged once, and fails no run.
    """

    def __init__(self, registry: ConnectionRegistry, epoch: int | None) -> None:
        self._registry = registry
        self._epoch = epoch
        self._pulses: dict[ScannerKind, LastScannerRun] | None = None
        self._news: dict[ScannerKind, tuple[str, bool]] = {}  # the last trouble, and whether something was blocked
        self._trouble = ""

    def clear(self, now: int) -> None:
        """Closes what earlier terms left: requests that waited too long, and interrupted runs. Raises Error."""
        rows = ScanRun.objects.filter(status=ScanStatus.WAITING, wanted_at__lt=now - PATIENCE)
        rows.update(status=ScanStatus.FAILED, ended_at=now, trouble=NOBODY_CAME)
        cut_off = ScanRun.objects.filter(status=ScanStatus.RUNNING).exclude(epoch=self._epoch)
        cut_off.update(status=ScanStatus.FAILED, ended_at=now, trouble=CUT_OFF)

    def last(self, scan: ScannerKind) -> LastScannerRun | None:
        """Returns this scanner's last run by any scheduler; None if it never ran, or if that is unknown."""
        return self._known().get(scan)

    def begin(self, scan: ScannerKind, now: int) -> ScanRun | None:
        """Begins a scheduled run; None: it has no row yet."""
        if scan.is_frequent:
            return None
        return self._try(lambda: self._new(scan, now, status=ScanStatus.RUNNING))

    def take(self, asked: ScanRun, now: int) -> bool:
        """Begins a requested run; False if it cannot begin, or another process has begun it. Raises Error."""
        waiting = ScanRun.objects.filter(pk=asked.pk, status=ScanStatus.WAITING)
        return bool(waiting.update(status=ScanStatus.RUNNING, started_at=now, epoch=self._epoch))

    def end(self, scan: ScannerKind, row: ScanRun | None, ended: EndedScannerRun) -> None:
        """Records the end of a run: its row with finds, if it is worth one, and the scanner's last run in any case."""
        row = self._try(lambda: self._close(scan, row, ended))
        self._news[scan] = (ended.said, bool(ended.report.holds))
        self._beat(scan, row, ended)

    def _close(self, scan: ScannerKind, row: ScanRun | None, ended: EndedScannerRun) -> ScanRun | None:
        if row is None and (scan.feeds_pages or not self._is_news(scan, ended)):
            return None
        report = ended.report
        with transaction.atomic():
            row = row or self._new(scan, ended.began)
            row.status = ScanStatus.FAILED if not ended.has_succeeded else ScanStatus.ENDED
            row.ended_at, row.trouble = ended.at, ended.said
            row.looked, row.found, row.acted, row.refused = report.looked, report.found, report.acted, report.refused
            row.holds = canonical([_text(hold) for hold in report.holds[:_HOLDS]])
            row.save()
            finds = sorted(report.finds, key=lambda find: find.outcome is None)[:FINDS]
            ScanFind.objects.bulk_create((_row(row, find) for find in finds), batch_size=_BATCH)
        return row

    def _new(self, scan: ScannerKind, began: int, status: ScanStatus = ScanStatus.RUNNING) -> ScanRun:
        return ScanRun.objects.create(
            scanner=scan.value, status=status, epoch=self._epoch, wanted_at=began, started_at=began
        )

    def _is_news(self, scan: ScannerKind, ended: EndedScannerRun) -> bool:
        """Tells whether a frequent scanner's run gets a row: what continues unchanged is covered by its first row."""
        trouble, was_held = self._news.get(scan, ("", False))
        if ended.report.acted or ended.report.refused:
            return True
        return bool(ended.said and ended.said != trouble) or (bool(ended.report.holds) and not was_held)

    def _beat(self, scan: ScannerKind, row: ScanRun | None, ended: EndedScannerRun) -> None:
        report, before = ended.report, self.last(scan)
        pulse = LastScannerRun(
            started_at=ended.began,
            ended_at=ended.at,
            succeeded_at=ended.at if ended.has_succeeded else before.succeeded_at if before else None,
            next_at=ended.next_at or (before.next_at if before else None),
            looked=report.looked,
            found=report.found,
            acted=report.acted,
            refused=report.refused,
            holds=tuple(_text(hold) for hold in report.holds[:_HOLDS]),
            trouble=ended.said,
            run=row.pk if row else None,
            is_refused=report.is_refused,
        )
        try:
            last_runs.write(self._registry.state(), scan, pulse)
        except (ConfigError, StoreError) as error:
            self._fail(str(error))
        if self._pulses is not None:
            self._pulses[scan] = pulse

    def _known(self) -> dict[ScannerKind, LastScannerRun]:
        """Returns the last runs, read once; an unavailable state store is read again the next time."""
        if self._pulses is None:
            try:
                self._pulses = last_runs.read(self._registry.state())
            except (ConfigError, StoreError):
                return {}
        return self._pulses

    def _try(self, write: Callable[[], ScanRun | None]) -> ScanRun | None:
        try:
            row = write()
        except Error as error:
            self._fail(f"The database answered {type(error).__name__}.")
            return None
        self._trouble = ""
        return row

    def _fail(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("scanner runs cannot be recorded: %s", trouble)
        self._trouble = trouble


def _row(run: ScanRun, find: ScannerFinding) -> ScanFind:
    queue = find.job.queue
    return ScanFind(
        run=run,
        deployment=queue.deployment,
        base=queue.slug,
        job=job_key(find.job.id),
        what=_text(find.what),
        act=find.act.value if find.act else "",
        outcome=find.outcome.value if find.outcome else "",
        why=_text(find.why),
        policy=_text(find.policy),
        audit=find.audit,
    )


def _text(said: str) -> str:
    """Returns text that a database accepts, cut to a length that a person reads."""
    return printable(said.encode("utf-8", "replace").decode("utf-8"))[:_SAID]
