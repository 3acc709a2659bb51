"""Lists what keeps a scanner from changing anything although its policy enables it.

The scanner checks this right before it acts, and so does the forecast of what it will do: so nothing is promised for a
blocked scanner. A further blocker is one line in `Blocker`, and one in
`recovery/reads/scanners/blockers.py` that tells when it applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.identifiers import printable


class Blocker(StrEnum):
    """Reasons why a scanner is blocked; each continues "Orphan-watch is enabled, but ". Only the first that applies is
    shown.
    """

    READ_ONLY = "{deployment} is configured to be read only"
    STATE = "the leader is unknown"
    NO_LEADER = "no scheduler leads"
    CONSOLE = "another console acts on {deployment}"
    SILENT = "{deployment} does not answer"
    DATABASE = "the safety limits cannot be read from the database"
    PAUSED = "it is paused"
    REFUSED = "the user of {deployment} lacks write permission"
    REDIS_PAUSE = "auto-recovery is paused on {deployment}"


@dataclass(frozen=True, slots=True)
class ScannerBlock:
    """A blocker that applies. `why`: a sentence for readers of a run's result. `ends`: when it ends by itself (ms)."""

    by: Blocker
    deployment: str
    why: str
    ends: int | None = None

    @property
    def clause(self) -> str:
        return self.by.format(deployment=printable(self.deployment))
