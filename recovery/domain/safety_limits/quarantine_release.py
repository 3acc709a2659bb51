"""Records that a person released a job from quarantine: its earlier incidents do not count any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from recovery.domain import json_fields


@dataclass(frozen=True, slots=True)
class QuarantineRelease:
    """Release of a job. Incidents that were proven until `at` do not count. `at` 0: all count."""

    at: int = 0
    by: str = ""

    @classmethod
    def unread(cls, _at: int) -> Self:
        """Returns no release, for a stored one that cannot be read: in doubt all incidents count."""
        return cls()

    def as_json(self) -> dict[str, Any]:
        return {"at": self.at, "by": self.by}

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        at, by = json_fields.fields(written, "at", "by")
        return cls(json_fields.whole(at), json_fields.text(by))
