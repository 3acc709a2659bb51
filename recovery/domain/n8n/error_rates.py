"""Error rate of each workflow within the last hour, counted from n8n's database."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.time_units import HOUR

WINDOW = HOUR  # of the time at which they ended
NEWEST = 20_000  # executions that are read, by their ids: some 10 ms by the primary key, whatever the indices are
LISTED = 20  # workflows, those with most failures


@dataclass(frozen=True, slots=True)
class ErrorRate:
    """Error rate of one workflow. `ended`: executions that succeeded or failed, without canceled and manual ones."""

    workflow: str
    title: str
    failed: int
    ended: int

    @property
    def percent(self) -> float:
        return 100 * self.failed / self.ended if self.ended else 0.0
