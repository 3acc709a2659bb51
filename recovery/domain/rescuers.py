"""The scanners that put lost jobs of one queue right by themselves, as its policy lets them."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.policy import Scanner

LATE = 1.05  # a run is planned up to so much later than its interval, so that not everything begins together


@dataclass(frozen=True, slots=True)
class Armed:
    """One that acts. In ms. `held`: what keeps it from acting, "" for nothing; `ends`: when that goes by itself."""

    scanner: Scanner
    every: int
    after: int = 0
    most: int = 1  # jobs in one run
    release: bool = False
    next_at: int | None = None  # when its next run is due; None: nobody says, so a whole interval may pass
    held: str = ""
    ends: int | None = None

    def run_after(self, ready_at: int, now: int, *, crowd: int = 0) -> int:
        """When a job that may be touched from `ready_at` on is done at the latest; `crowd`: lost together with it."""
        step, ready_at = round(self.every * LATE), max(ready_at, now)
        first = ready_at + step
        if self.next_at is not None:
            due = self.next_at if self.next_at >= now else now + step
            first = due + step * max(0, -(-(ready_at - due) // step))
        return first + step * (max(0, crowd - 1) // max(1, self.most))


@dataclass(frozen=True, slots=True)
class Rescuers:
    """None: it only observes there, or nobody knows."""

    watch: Armed | None = None
    stale: Armed | None = None


NOBODY = Rescuers()
