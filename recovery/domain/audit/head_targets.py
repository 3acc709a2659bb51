"""Configures where heads of the audit chain are sent: out of reach of anyone who can write the database."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recovery.domain.alerts.channels import Webhook
from recovery.domain.time_units import MINUTE


class AuditHeadTarget(StrEnum):
    """Kind of place that heads are sent to."""

    FILE = "file"
    SYSLOG = "syslog"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True)
class AuditHeadTargets:
    """Targets of audit heads. `every`: ms between heads. `syslog`: a path, or udp://HOST:PORT or tcp://HOST:PORT."""

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
        """Returns the part of the address that may be shown."""
        if place is AuditHeadTarget.WEBHOOK:
            return self.webhook.target if self.webhook else ""
        return self.file if place is AuditHeadTarget.FILE else self.syslog
