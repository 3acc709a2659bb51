"""Who works on a bulk run: one process at a time, for as long as it says so by its beat."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F

from recovery.actions import runs
from recovery.models import BulkRun

EVERY_MS = 1000  # between two beats


class Lost(Exception):
    """Somebody else runs it now."""

    def __init__(self) -> None:
        super().__init__("Another scheduler runs it now.")


@dataclass(slots=True)
class Claim:
    """The right to run one run: its last beat, which only its holder knows. `before`: whose it was until then."""

    run: BulkRun
    before: int | None = None

    @classmethod
    def take(cls, id: int, now: int) -> Claim | None:
        """One conditional UPDATE; None when it is over, or another takes it in the same moment.

        Whoever leads takes it at once, from whomever has it: that one leads no more, and learns of it at its next beat.
        Its scripts are refused by the fence.
        """
        run = BulkRun.objects.filter(pk=id, status__in=runs.OPEN).first()
        if run is None:
            return None
        claim = cls(run, run.beat_at)
        try:
            claim.beat(now)
        except Lost:
            return None
        return claim

    def beat(self, now: int, **facts: object) -> None:
        """Says that we are here, with what has changed. Raises Lost."""
        last = self.run.beat_at
        now = max(now, (last or 0) + 1)
        held = BulkRun.objects.filter(pk=self.run.pk, beat_at=last)
        if not held.update(beat_at=now, **facts):
            raise Lost
        self.run.beat_at = now
        for name, value in facts.items():
            setattr(self.run, name, value)

    def wants_stop(self, now: int) -> bool:
        """Whether somebody has asked for its end. Beats when it is time to. Raises Lost."""
        found = BulkRun.objects.filter(pk=self.run.pk).values_list("wants_stop", "beat_at").first()
        if found is None or found[1] != self.run.beat_at:
            raise Lost
        if now - (self.run.beat_at or 0) >= EVERY_MS:
            self.beat(now)
        return bool(found[0])

    def insist(self, **facts: object) -> None:
        """Within a transaction: it is ours, and nobody can take it before the commit. Raises Lost.

        A process that was stopped for longer than its claim learns of it here, before it writes over another's work.
        """
        held = BulkRun.objects.filter(pk=self.run.pk, beat_at=self.run.beat_at)
        if not held.update(**{"beat_at": F("beat_at"), **facts}):
            raise Lost
