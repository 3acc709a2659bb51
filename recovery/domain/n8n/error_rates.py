"""How many executions of each workflow failed lately, as n8n's database has them."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.ages import HOUR

WINDOW = HOUR  # of the time at which they ended
NEWEST = 20_000  # executions that are looked at, by their ids: some 10 ms by the primary key, whatever the indices are
LISTED = 20  # workflows, those with most failures


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """One workflow. `ended`: its executions that succeeded or failed; canceled and manual ones are not counted."""

    workflow: str
    title: str
    failed: int
    ended: int

    @property
    def percent(self) -> float:
        return 100 * self.failed / self.ended if self.ended else 0.0
