"""What keeps a scanner that its policy enables from changing anything for now.

The scanner asks right before it acts, and whoever predicts what it will do asks the same: so nothing is promised in the
name of one that is blocked. A further blocker is one line in `Blocker`, and one in `recovery/reads/blockers.py` that
tells when it applies.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.refs import shown


class Blocker(StrEnum):
    """The value goes on after "Orphan-watch is enabled, but ". The first that applies is told."""

    READ_ONLY = "{deployment} is configured to be read only"
    STATE = "the leader is unknown"
    NO_LEADER = "no scheduler leads"
    CONSOLE = "another console acts on {deployment}"
    SILENT = "{deployment} does not answer"
    DATABASE = "the safety limits cannot be read from the database"
    PAUSED = "it is paused"
    REFUSED = "the user of {deployment} lacks write permission"
    BRAKE = "auto-recovery is paused on {deployment}"


@dataclass(frozen=True, slots=True)
class Blocked:
    """By what, and `why`: a sentence for whoever reads what a run came to. `ends`: when it goes by itself (ms)."""

    by: Blocker
    deployment: str
    why: str
    ends: int | None = None

    @property
    def clause(self) -> str:
        return self.by.format(deployment=shown(self.deployment))
