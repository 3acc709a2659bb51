"""Defines what scanners may do to a queue: dry run or enabled, after how long, how many jobs per run, what never.

The defaults are safe without any configuration: the orphan-watch and auto-retry only do dry runs; the stale check acts,
because 15 minutes without a lock is beyond anything a library itself would wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from recovery.domain.auto_retry.backoff import Backoffs
from recovery.domain.auto_retry.rules import NeverRetry
from recovery.domain.time_units import MINUTE, age


class PolicyScanner(StrEnum):
    """Scanners that a policy rules; the others change nothing."""

    ORPHAN_WATCH = "orphan-watch"
    STALE_CHECK = "stale-check"
    AUTO_RETRY = "auto-retry"
    STARTUP_SWEEP = "startup-sweep"

    @property
    def field(self) -> str:
        return self.value.replace("-", "_")


class ScannerMode(StrEnum):
    DRY_RUN = "dry-run"
    ENABLED = "enabled"


# What a worker did before it failed is done again. Of an orphan the library itself would run it again.
NEEDS_NOTE = frozenset({PolicyScanner.AUTO_RETRY})
# These meet jobs that are locked still, by a holder whose connection is gone.
MAY_RELEASE = frozenset({PolicyScanner.ORPHAN_WATCH, PolicyScanner.STALE_CHECK})
NO_NOTE = "It is enabled, but the idempotency note is not set, so it only does a dry run."


@dataclass(frozen=True, slots=True)
class ScannerPolicy:
    """Permissions of one scanner. `after` counts from when the job was first seen as it is, in ms."""

    mode: ScannerMode = ScannerMode.DRY_RUN
    after: int = 0
    most: int = 100  # jobs in one run
    release: bool = False  # take the lock of a job whose holder's connection is gone, without waiting for its end

    @property
    def words(self) -> str:
        after = f" after {age(self.after)}" if self.after else ""
        is_enabled = self.mode is ScannerMode.ENABLED
        said = f"{'Enabled' if is_enabled else 'Dry run'}{after}, at most {self.most:,} jobs per run."
        return (
            f"{said} {'Releases' if is_enabled else 'Would release'} locks whose worker is gone."
            if self.release
            else said
        )


@dataclass(frozen=True, slots=True)
class Policy:
    """Resolved policy of one queue. `idempotency` is a person's note why a job of this queue may run twice."""

    orphan_watch: ScannerPolicy = ScannerPolicy(most=500)  # every few seconds; five scripts
    stale_check: ScannerPolicy = ScannerPolicy(ScannerMode.ENABLED, 15 * MINUTE, 500)
    auto_retry: ScannerPolicy = ScannerPolicy()  # the budget is the tighter limit, in most queues
    startup_sweep: ScannerPolicy = ScannerPolicy(
        ScannerMode.ENABLED, most=10_000
    )  # only of configured tables: rows of a dead process
    backoffs: Backoffs = field(default_factory=Backoffs)
    never: NeverRetry = field(default_factory=NeverRetry)
    idempotency: str = ""

    def duty(self, scanner: PolicyScanner) -> ScannerPolicy:
        duty: ScannerPolicy = getattr(self, scanner.field)
        return duty

    def may_act(self, scanner: PolicyScanner) -> bool:
        """Returns True if the scanner is enabled, and has the note where one is needed."""
        return self.duty(scanner).mode is ScannerMode.ENABLED and not self.lacks_note(scanner)

    def lacks_note(self, scanner: PolicyScanner) -> bool:
        """Returns True if the scanner is enabled, but only does dry runs, as the idempotency note is missing."""
        armed = self.duty(scanner).mode is ScannerMode.ENABLED
        return armed and scanner in NEEDS_NOTE and not self.idempotency.strip()

    def words(self, scanner: PolicyScanner) -> tuple[str, ...]:
        said = NO_NOTE if self.lacks_note(scanner) else self.duty(scanner).words
        if scanner is not PolicyScanner.AUTO_RETRY:
            return (said,)
        return said, *self.backoffs.words, *self.never.words
