"""Describes consoles that watch the same Redis, each with its own database: of those that lead, only one acts.

It is the one that was there first, as long as it keeps announcing itself; a restart within `LIFE` loses nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from recovery.domain.identifiers import printable

LIFE = 16_000  # ms without a word after which a console is gone: several words, and a lease that changes hands


@dataclass(frozen=True, slots=True)
class Console:
    """Installation whose scheduler leads. `acts`: it acts on this deployment, and all others are on standby."""

    deployment: str
    installation: str
    host: str
    pid: int
    since: int
    acts: bool

    @property
    def words(self) -> str:
        """Returns a sentence without an age, as an age would make it a new one at each check."""
        since = datetime.fromtimestamp(self.since / 1000, UTC)
        who = f"{printable(self.host)} (process {self.pid}, installation {self.installation[:8]})"
        what = "acts on" if self.acts else "watches"
        return f"Another console {what} {printable(self.deployment)}: {who}, since {since:%Y-%m-%d %H:%M} UTC."

    @property
    def meaning(self) -> str:
        if self.acts:
            return f"Scanners and bulk runs are paused here, and resume when it has not been seen for {LIFE // 1000} s."
        return "It is on standby, and takes over when this one stops."
