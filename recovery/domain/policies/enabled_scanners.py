"""Describes the enabled scanners that recover lost jobs of one queue by themselves, as its policy lets them."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.policies.types import PolicyScanner

LATE = 1.05  # jitter: a run is planned up to so much later, so that scanners do not begin together


@dataclass(frozen=True, slots=True)
class EnabledScanner:
    """An enabled scanner, in ms. `held`: what keeps it from acting, "" if nothing; `ends`: when that ends by itself."""

    scanner: PolicyScanner
    every: int
    after: int = 0
    most: int = 1  # jobs in one run
    release: bool = False
    next_at: int | None = None  # when its next run is due; None: not known, so a whole interval may pass
    held: str = ""
    ends: int | None = None

    def run_after(self, ready_at: int, now: int, *, crowd: int = 0) -> int:
        """Returns when a job that is ready from `ready_at` on is done at the latest; `crowd`: jobs lost with it."""
        step, ready_at = round(self.every * LATE), max(ready_at, now)
        first = ready_at + step
        if self.next_at is not None:
            due = self.next_at if self.next_at >= now else now + step
            first = due + step * max(0, -(-(ready_at - due) // step))
        return first + step * (max(0, crowd - 1) // max(1, self.most))


@dataclass(frozen=True, slots=True)
class EnabledScanners:
    """Enabled scanners of a queue. None: it only does dry runs there, or that is not known."""

    watch: EnabledScanner | None = None
    stale: EnabledScanner | None = None


NO_SCANNERS = EnabledScanners()
