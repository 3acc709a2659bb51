"""Decides whether a lost job that the orphan watch found may be put back to work without a person."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.policies.types import ScannerPolicy
from recovery.domain.stuck.context import VerdictContext
from recovery.domain.stuck.holders import GONE_FOR, gone_for
from recovery.domain.stuck.types import VerdictKind
from recovery.domain.time_units import age
from recovery.scanners.orphan_watch.assessment import AssessedJob
from recovery.scanners.orphan_watch.deployment_watch import DeploymentFindings

N8N = "It is an n8n job: its workflow would run again from the start, so a person has to confirm it."
QUARANTINED = "It stalled repeatedly and is quarantined until a person decides."
MALFORMED = "Its data violates the schema of its queue, so it waits for a person."
UNPROVEN = "It has no lock, but that is not yet proof: the next checks confirm it."
LOCKED = "Its lock has not expired yet, and the policy does not allow releasing it."
UNNAMED = "Its lock has not expired yet, and no named worker of it was seen disconnecting."
ENDLESS = "Its lock never expires: stale-check handles it."
JUST_GONE = "Its worker has just disconnected: the next check shows whether it reconnected."


@dataclass(frozen=True, slots=True)
class RescueCandidate:
    one: AssessedJob
    around: VerdictContext
    is_malformed: bool = False

    @property
    def ref(self) -> JobRef:
        return self.one.row.ref

    @property
    def has_lost_worker(self) -> bool:
        return self.one.kind is VerdictKind.WORKER_LOST

    @property
    def what(self) -> str:
        return f"{self.one.kind.value.capitalize()}: {' '.join(self.one.verdict(self.around).evidence)}"

    @property
    def gone_for(self) -> int | None:
        """Time in ms since its named worker disconnected, as seen from connections; None: unknown."""
        return gone_for(self.one.row, self.around)

    @property
    def may_come_back(self) -> bool:
        """True if its worker left so recently that the next snapshot may show it again."""
        return self.has_lost_worker and self.gone_for is not None and self.gone_for < GONE_FOR

    def why_not(self, duty: ScannerPolicy) -> str:
        """Returns why it is not put back, except for quarantine, which the database knows; "": no reason."""
        if self.around.is_n8n:
            return N8N
        if self.is_malformed:
            return MALFORMED
        if self.has_lost_worker:
            return self._why_not_released(duty) or self._too_soon(duty)
        return self._too_soon(duty) if self.one.kind.is_orphaned else UNPROVEN

    def _why_not_released(self, duty: ScannerPolicy) -> str:
        lock = self.one.row.lock
        if lock is not None and lock.ttl is None:
            return ENDLESS
        if not duty.release:
            return LOCKED
        if self.gone_for is None:
            return UNNAMED
        return JUST_GONE if self.may_come_back else ""

    def _too_soon(self, duty: ScannerPolicy) -> str:
        for_now = self.around.now - self.one.mark.opened_at
        return f"Its policy waits {age(duty.after - for_now)} more." if for_now < duty.after else ""


def candidates_by_queue(found: Iterable[DeploymentFindings]) -> dict[QueueRef, list[RescueCandidate]]:
    """Groups lost jobs by queue, the longest lost first, so that these are put back first if not all may be."""
    groups: dict[QueueRef, list[RescueCandidate]] = {}
    for one in found:
        bad = {row.job for row in one.rows if row.verdict.kind is VerdictKind.MALFORMED}
        for judged in one.judged:
            if judged.kind.is_lost:
                ref = judged.row.ref
                groups.setdefault(ref.queue, []).append(RescueCandidate(judged, one.around[ref.queue], ref in bad))
    return {ref: sorted(lost, key=lambda one: (one.one.mark.opened_at, one.ref)) for ref, lost in groups.items()}
