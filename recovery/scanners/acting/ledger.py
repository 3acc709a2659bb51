"""What the runs of the scanners came to, written down.

Every run writes the pulse of its scanner into the state store. Into the database go the runs of the scanners that run
seldom and, of the frequent ones, those that acted, were refused something, failed or were held anew, or were asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from django.db import Error, transaction

from recovery.connections.registry import Registry
from recovery.domain.chain import canonical, job_key
from recovery.domain.refs import shown
from recovery.domain.scans import Find, Report, Scan, ScanStatus
from recovery.errors import ConfigError, StoreError
from recovery.models import ScanFind, ScanRun
from recovery.reads import pulses
from recovery.reads.pulses import Pulse

log = logging.getLogger(__name__)

FINDS = 1_000  # written down of one run, what was done first: the run's own numbers count all of them
PATIENCE = 10 * 60_000  # ms that an order waits for a scheduler: what was asked for longer ago nobody expects any more
NOBODY_CAME = "No scheduler started it within ten minutes. Start it again."
CUT_OFF = "The scheduler that ran it stopped before the run finished."
_BATCH = 500
_SAID = 1_000  # characters of a sentence
_HOLDS = 20  # sentences of one run


@dataclass(frozen=True, slots=True)
class Ended:
    """One run that has ended. `trouble` "": it did not raise."""

    began: int
    at: int
    report: Report
    trouble: str = ""
    next_at: int | None = None

    @property
    def has_succeeded(self) -> bool:
        """It looked at something, or there was nothing that it could not look at; and it was let do what it wanted."""
        return not self.trouble and not self.report.is_refused and self.report.has_looked

    @property
    def said(self) -> str:
        return _text(self.trouble or " ".join(self.report.faults))


class Ledger:
    """Of one term, whose `epoch` it is; None: nobody can know who leads.

    Scanners run side by side, each in a thread of its own; no two touch the same scanner. What cannot be written down
    is logged once, and costs no run.
    """

    def __init__(self, registry: Registry, epoch: int | None) -> None:
        self._registry = registry
        self._epoch = epoch
        self._pulses: dict[Scan, Pulse] | None = None
        self._news: dict[Scan, tuple[str, bool]] = {}  # the last trouble, and whether something was held
        self._trouble = ""

    def clear(self, now: int) -> None:
        """Settles what earlier terms left: orders that waited too long, and runs that were cut off. Raises Error."""
        rows = ScanRun.objects.filter(status=ScanStatus.WAITING, wanted_at__lt=now - PATIENCE)
        rows.update(status=ScanStatus.FAILED, ended_at=now, trouble=NOBODY_CAME)
        cut_off = ScanRun.objects.filter(status=ScanStatus.RUNNING).exclude(epoch=self._epoch)
        cut_off.update(status=ScanStatus.FAILED, ended_at=now, trouble=CUT_OFF)

    def last(self, scan: Scan) -> Pulse | None:
        """Of this scanner, whoever ran it. None when it never ran, or when nobody can say."""
        return self._known().get(scan)

    def begin(self, scan: Scan, now: int) -> ScanRun | None:
        """A run that was due. None: it has no row, for now."""
        if scan.is_frequent:
            return None
        return self._try(lambda: self._new(scan, now, status=ScanStatus.RUNNING))

    def take(self, asked: ScanRun, now: int) -> bool:
        """A run that was asked for; False when it cannot be begun, or somebody else has. Raises Error."""
        waiting = ScanRun.objects.filter(pk=asked.pk, status=ScanStatus.WAITING)
        return bool(waiting.update(status=ScanStatus.RUNNING, started_at=now, epoch=self._epoch))

    def end(self, scan: Scan, row: ScanRun | None, ended: Ended) -> None:
        """The row with its finds, when it is worth one, and the pulse in any case."""
        row = self._try(lambda: self._close(scan, row, ended))
        self._news[scan] = (ended.said, bool(ended.report.holds))
        self._beat(scan, row, ended)

    def _close(self, scan: Scan, row: ScanRun | None, ended: Ended) -> ScanRun | None:
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

    def _new(self, scan: Scan, began: int, status: ScanStatus = ScanStatus.RUNNING) -> ScanRun:
        return ScanRun.objects.create(
            scanner=scan.value, status=status, epoch=self._epoch, wanted_at=began, started_at=began
        )

    def _is_news(self, scan: Scan, ended: Ended) -> bool:
        """What goes on as it was is told by the row that began it."""
        trouble, was_held = self._news.get(scan, ("", False))
        if ended.report.acted or ended.report.refused:
            return True
        return bool(ended.said and ended.said != trouble) or (bool(ended.report.holds) and not was_held)

    def _beat(self, scan: Scan, row: ScanRun | None, ended: Ended) -> None:
        report, before = ended.report, self.last(scan)
        pulse = Pulse(
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
            pulses.write(self._registry.state(), scan, pulse)
        except (ConfigError, StoreError) as error:
            self._fail(str(error))
        if self._pulses is not None:
            self._pulses[scan] = pulse

    def _known(self) -> dict[Scan, Pulse]:
        """Read once; a state store that is away is asked again."""
        if self._pulses is None:
            try:
                self._pulses = pulses.read(self._registry.state())
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


def _row(run: ScanRun, find: Find) -> ScanFind:
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
    """What a database takes as text, and a person reads to its end."""
    return shown(said.encode("utf-8", "replace").decode("utf-8"))[:_SAID]
