"""Lock of a bulk run: one process at a time works on it, for as long as it renews the run's `beat_at`."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F

from recovery.actions.bulk import run_rows
from recovery.models import BulkRun

EVERY_MS = 1000  # between two renewals


class BulkRunTaken(Exception):
    """Raised when another process executes the run now."""

    def __init__(self) -> None:
        super().__init__("Another scheduler runs it now.")


@dataclass(slots=True)
class BulkRunLock:
    """Lock on one bulk run: its last `beat_at`, which only its holder knows. `before`: that of the holder before."""

    run: BulkRun
    before: int | None = None

    @classmethod
    def take(cls, id: int, now: int) -> BulkRunLock | None:
        """Takes the run with one conditional UPDATE; returns None if it has ended, or another takes it meanwhile.

        The leader takes it at once, from any process that has it: that one leads no more, and learns of it at its next
        renewal. Its scripts are refused by the fence.
        """
        run = BulkRun.objects.filter(pk=id, status__in=run_rows.OPEN).first()
        if run is None:
            return None
        claim = cls(run, run.beat_at)
        try:
            claim.beat(now)
        except BulkRunTaken:
            return None
        return claim

    def beat(self, now: int, **facts: object) -> None:
        """Renews the lock, together with what has changed. Raises Lost."""
        last = self.run.beat_at
        now = max(now, (last or 0) + 1)
        held = BulkRun.objects.filter(pk=self.run.pk, beat_at=last)
        if not held.update(beat_at=now, **facts):
            raise BulkRunTaken
        self.run.beat_at = now
        for name, value in facts.items():
            setattr(self.run, name, value)

    def wants_stop(self, now: int) -> bool:
        """Returns True if an operator has requested a stop. Renews the lock when it is due. Raises Lost."""
        found = BulkRun.objects.filter(pk=self.run.pk).values_list("wants_stop", "beat_at").first()
        if found is None or found[1] != self.run.beat_at:
            raise BulkRunTaken
        if now - (self.run.beat_at or 0) >= EVERY_MS:
            self.beat(now)
        return bool(found[0])

    def insist(self, **facts: object) -> None:
        """Makes sure within a transaction that the run is ours, and stays so until the commit. Raises Lost.

        A process that was stopped for longer than its claim learns of it here, before it writes over another's work.
        """
        held = BulkRun.objects.filter(pk=self.run.pk, beat_at=self.run.beat_at)
        if not held.update(**{"beat_at": F("beat_at"), **facts}):
            raise BulkRunTaken
