"""Where the heads of the audit's chain are sent, so that somebody else keeps them than who can write the database."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.ages import MINUTE
from recovery.domain.channels import Webhook


class AuditHeadTarget(StrEnum):
    """A kind of place."""

    FILE = "file"
    SYSLOG = "syslog"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class AuditHeadTargets:
    """`every`: ms between two heads. `syslog`: a path, or udp://HOST:PORT or tcp://HOST:PORT."""

    every: int = 10 * MINUTE
    file: str = ""
    syslog: str = ""
    webhook: Webhook | None = None

    @property
    def configured(self) -> tuple[AuditHeadTarget, ...]:
        told = {
            AuditHeadTarget.FILE: self.file,
            AuditHeadTarget.SYSLOG: self.syslog,
            AuditHeadTarget.WEBHOOK: self.webhook,
        }
        return tuple(place for place, where in told.items() if where)

    def target(self, place: AuditHeadTarget) -> str:
        """As much of the address as anybody may see."""
        if place is AuditHeadTarget.WEBHOOK:
            return self.webhook.target if self.webhook else ""
        return self.file if place is AuditHeadTarget.FILE else self.syslog
