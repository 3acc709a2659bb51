"""What scanners act under: the mandate of their term, the policies as they are now, and whatever may hold them back."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import Error

from recovery.config import Config
from recovery.domain.mandate import Mandate
from recovery.domain.refs import shown
from recovery.domain.scans import Scan
from recovery.models import ScannerPause
from recovery.reads.policies import Following
from recovery.scanners.acting.deeds import Deeds, Holding


@dataclass(frozen=True, slots=True)
class Warrant:
    """`mandate` None: nobody can know who leads, so nothing may be done."""

    config: Config
    mandate: Mandate | None
    brakes: Holding

    def deeds(self, scan: Scan, *, observes: bool = False) -> Deeds:
        """For one run. Raises Error of the database: what the policies say is not known then, so nothing is done."""
        book = Following(self.config)
        return Deeds(self.mandate, scan, book, self.holding(scan), observes=observes)

    def holding(self, scan: Scan) -> Holding:
        """The brakes of a deployment, and before them somebody who paused the scanner."""

        def holds(deployment: str) -> tuple[str, ...]:
            try:
                paused = paused_words(scan)
                return (paused,) if paused else self.brakes(deployment)
            except Error as error:
                return (f"Nothing is done: the database does not say what holds ({type(error).__name__}).",)

        return holds


def paused_words(scan: Scan) -> str:
    """By whom and why; "" when it is not paused. Raises Error."""
    row = ScannerPause.objects.filter(pk=scan.value).first()
    if row is None:
        return ""
    because = f": {shown(row.reason)}" if row.reason else "."
    return f"{scan.value.capitalize()} is paused by {shown(row.by)}{because}"
