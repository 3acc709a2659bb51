"""A job that a person let out of quarantine: what it did before does not count any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from recovery.domain import stored


@dataclass(frozen=True, slots=True)
class Pardon:
    """Incidents that were proven until then are forgiven. `at` 0: none is."""

    at: int = 0
    by: str = ""

    @classmethod
    def unread(cls, _at: int) -> Self:
        """In doubt nothing is forgiven."""
        return cls()

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "by": self.by}

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Raises ValueError on what `as_json` cannot have made."""
        at, by = stored.fields(written, "at", "by")
        return cls(stored.whole(at), stored.text(by))
