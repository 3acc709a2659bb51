"""What a person may read of payloads: all of it, or all but its secrets."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest

from dashboard.access import may_see_payloads
from recovery.domain import redact


@dataclass(frozen=True, slots=True)
class Discretion:
    """Every text of a job goes through one of these on its way to a page."""

    sees_all: bool

    @classmethod
    def of(cls, request: HttpRequest) -> Discretion:
        return cls(may_see_payloads(request.user))

    def text(self, given: str) -> str:
        """An error, a log line, a summary."""
        return given if self.sees_all else redact.text(given)

    def payload(self, given: str) -> str:
        """A field that should be JSON."""
        return given if self.sees_all else redact.payload(given)

    def field(self, name: str, given: str) -> str:
        """A field of the job's hash by its name."""
        return given if self.sees_all else redact.member(name, given)
