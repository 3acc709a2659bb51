"""Puts lost jobs of the orphan watch back to work where the policy allows it: proven orphans go back to wait, and with
`release` also jobs whose named worker has disconnected, before their locks expire.

Quarantine counts incidents alone: so no job goes before its own incident is in the database and counts, and none
whose earlier incidents cannot be read. A refused job is not retried at each pass: only when it has moved since, or
after a while.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from recovery.backends.redis_common import active_jobs
from recovery.domain.actions.types import Action, ActionOptions, ExpectedJob, Outcome
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.scanners.types import ScannerFinding, ScannerReport
from recovery.domain.time_units import MINUTE
from recovery.errors import StoreError
from recovery.reads.stuck.observations import JobFingerprint
from recovery.reads.stuck.queries import job_fingerprint
from recovery.scanners.orphan_watch import incident_guard
from recovery.scanners.orphan_watch import rescue_rules as finding
from recovery.scanners.orphan_watch.deployment_watch import DeploymentFindings
from recovery.scanners.orphan_watch.rescue_rules import RescueCandidate
from recovery.scanners.runtime.scanner_actions import ScannerActionRequest, ScannerActions
from recovery.stores.registry import ConnectionRegistry

REFUSED_FOR = MINUTE  # until a refused job is tried again
TOLD = 1_000  # finds of a requested run, each with its evidence in words


class OrphanRescue:
    """Recovery by the orphan watch. `is_pending`: a worker just left or a lock ends: the next snapshot tells more."""

    def __init__(self, registry: ConnectionRegistry) -> None:
        self._registry = registry
        self._refused: dict[JobRef, tuple[JobFingerprint, int]] = {}
        self.is_pending = False

    def act(
        self,
        found: Iterable[DeploymentFindings],
        scanner_actions: ScannerActions,
        *,
        queue: QueueRef | None = None,
        tells: bool = False,
    ) -> ScannerReport:
        """Puts back the found jobs. `tells`: the run was requested, so every lost job is reported, also unchanged ones.

        Raises Error of the database.
        """
        found = tuple(found)
        groups = finding.candidates_by_queue(found)
        here = {one.ref for one in chain.from_iterable(groups.values())}
        self._refused = {ref: kept for ref, kept in self._refused.items() if ref in here}
        soon = chain.from_iterable(one.soon for one in found)
        self.is_pending = any(scanner_actions.policy(ref).policy.may_act(PolicyScanner.ORPHAN_WATCH) for ref in soon)
        finds: list[ScannerFinding] = []
        for ref, group in groups.items():
            if queue in (None, ref):
                finds += self._queue(ref, group, scanner_actions, tells=tells and len(finds) < TOLD)
        return ScannerReport(
            len(here),
            tuple(finds),
            tuple(scanner_actions.holds),
            tuple(scanner_actions.faults),
            is_refused=scanner_actions.is_refused,
        )

    def _queue(
        self, ref: QueueRef, group: Sequence[RescueCandidate], scanner_actions: ScannerActions, *, tells: bool
    ) -> list[ScannerFinding]:
        policy = scanner_actions.policy(ref).policy
        if not tells and not policy.may_act(PolicyScanner.ORPHAN_WATCH):
            return []
        duty = policy.orphan_watch
        self.is_pending |= duty.release and any(one.may_come_back for one in group)
        against = [(one, one.why_not(duty)) for one in group]
        ready = [one for one, why in against if not why and not self._was_refused(one)]
        left = [ScannerFinding(one.ref, one.what, why) for one, why in against if why][:TOLD] if tells else []
        return [*self._carry_out(ref, ready, scanner_actions, tells=tells), *left]

    def _carry_out(
        self, ref: QueueRef, ready: Sequence[RescueCandidate], scanner_actions: ScannerActions, *, tells: bool
    ) -> list[ScannerFinding]:
        if not ready:
            return []
        if why := scanner_actions.why_not(ref):
            return [
                ScannerFinding(one.ref, one.what, why) for one in ready[: TOLD if tells else scanner_actions.room(ref)]
            ]
        most = scanner_actions.room(ref) + 1  # one more, so that the report says when not all may go
        healthy = [one for one in ready if not one.one.is_quarantined][:most]
        quarantined = [one for one in ready if one.one.is_quarantined][:most]  # unless a person has released it
        going, left = self._counted(ref, [*healthy, *quarantined])
        done = self._requeue(ref, [one for one in going if not one.has_lost_worker], scanner_actions)
        done += self._release(ref, [one for one in going if one.has_lost_worker], scanner_actions)
        self._remember(done, {one.ref: one for one in going})
        return done + (left if tells else [])

    def _counted(
        self, ref: QueueRef, chosen: Sequence[RescueCandidate]
    ) -> tuple[list[RescueCandidate], list[ScannerFinding]]:
        """Returns the jobs to put back, and finds for those left to a person."""
        ids = [one.ref.id for one in chosen]
        open_ones, quarantined = (
            incident_guard.jobs_with_open_incident(ref, ids),
            incident_guard.quarantined_jobs(ref, ids, chosen[0].around.now),
        )
        going = [one for one in chosen if one.ref.id in open_ones and one.ref.id not in quarantined]
        return going, [
            ScannerFinding(one.ref, one.what, finding.QUARANTINED) for one in chosen if one.ref.id in quarantined
        ]

    def _requeue(
        self, ref: QueueRef, going: Sequence[RescueCandidate], scanner_actions: ScannerActions
    ) -> list[ScannerFinding]:
        return list(
            scanner_actions.do(
                Action.REQUEUE,
                ref,
                [self._action_request(one, ExpectedJob.of(one.one.row), scanner_actions) for one in going],
            )
        )

    def _release(
        self, ref: QueueRef, going: Sequence[RescueCandidate], scanner_actions: ScannerActions
    ) -> list[ScannerFinding]:
        held = self._held(ref, going, scanner_actions)
        if not held:
            return []
        requests = [self._action_request(one, held[one.ref.id], scanner_actions) for one in going if one.ref.id in held]
        return incident_guard.release_as_proven(
            ref,
            list(held),
            going[0].around.now,
            lambda: scanner_actions.do(Action.RELEASE, ref, requests, ActionOptions(requeue=True)),
        )

    def _held(
        self, ref: QueueRef, going: Sequence[RescueCandidate], scanner_actions: ScannerActions
    ) -> dict[str, ExpectedJob]:
        """Reads the jobs with their lock tokens, which a pass does not read. Jobs that have moved are left out."""
        if not going:
            return {}
        try:
            rows = active_jobs.details(self._registry.wire(ref.deployment), ref, [one.ref.id for one in going])
        except StoreError as error:
            scanner_actions.faults.append(str(error))
            return {}
        return {
            row.id: ExpectedJob.of(row)
            for one, row in zip(going, rows, strict=True)
            if row.lock is not None
            and row.worker == one.one.row.worker
            and job_fingerprint(row) == one.one.mark.signature
        }

    @staticmethod
    def _action_request(
        one: RescueCandidate, seen: ExpectedJob, scanner_actions: ScannerActions
    ) -> ScannerActionRequest:
        return ScannerActionRequest(
            seen, one.what, scanner_actions.policy(one.ref.queue).sentence(PolicyScanner.ORPHAN_WATCH, one.around.now)
        )

    def _was_refused(self, one: RescueCandidate) -> bool:
        seen, at = self._refused.get(one.ref, (None, 0))
        return seen == one.one.mark.signature and one.around.now - at < REFUSED_FOR

    def _remember(self, done: Iterable[ScannerFinding], going: dict[JobRef, RescueCandidate]) -> None:
        for find in done:
            if find.outcome in (Outcome.REFUSED, Outcome.UNKNOWN):
                one = going[find.job]
                self._refused[find.job] = (one.one.mark.signature, one.around.now)
