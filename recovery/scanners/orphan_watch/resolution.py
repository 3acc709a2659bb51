"""Finds out who resolved an incident: an action in the audit, the library's stalled check, the job's own worker, or
unknown.

1. An action on this job that was done since the incident opened: an operator, or a scanner.
2. The job's stalled counter rose, or its queue's events report a stall: the stalled check.
3. It finished, or its lock is back or renewed since and it was not started anew: the worker that had it. That another
   worker has connected meanwhile tells nothing: the lock of a dead one lasts until its time.
4. There is no such job any more: removed.
5. Anything else moved it, and left no trace of who: "".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recovery.actions.audit.audit_log import OUTCOME
from recovery.backends.base import CommandClient
from recovery.backends.redis_common import job_outcomes
from recovery.backends.redis_common.job_outcomes import JobOutcome
from recovery.domain.actions.types import Outcome
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef
from recovery.models import AuditEntry, AuditJob
from recovery.reads.stuck.observations import JobFingerprint

STALLED_CHECK, WORKER, REMOVED = "stalled-check", "worker", "removed"
OPERATOR, SCANNER, NOBODY_KNOWN = "operator", "scanner", ""
SEARCHED = 50  # jobs searched in the active list at once
UNDER_WAY = 60_000  # ms: an action whose outcome is not written yet is waited for this long
_LEARNED = 1 / 6  # of a lock's length: the longest that was seen of a lock is this much less at most
_AT_ONCE = 400  # names in one query
_SLACK = 2_000  # ms between the web's clock and ours


@dataclass(frozen=True, slots=True)
class UnresolvedJob:
    """Job as it was when its incident was opened. `signature` None: not known after a restart. `had_lock`: the lock of
    its lost worker had not expired.
    """

    id: str
    opened_at: int
    signature: JobFingerprint | None = None
    had_lock: bool = False


@dataclass(frozen=True, slots=True)
class IncidentResolution:
    """Resolution of an incident; `audit` is the number of the entry of the action, if there was one. `is_proof`: a
    stall proves that no worker had the job.
    """

    by: str
    audit: int | None = None

    @property
    def is_proof(self) -> bool:
        return self.by == STALLED_CHECK


def resolve_incidents(
    wire: CommandClient,
    ref: QueueRef,
    lost: Sequence[UnresolvedJob],
    now: int,
    *,
    has_events: bool,
    lock_length: int = 0,
) -> dict[str, IncidentResolution]:
    """Returns the resolutions by job id, without jobs that are unchanged or cannot be told yet. `lock_length` 0: not
    known, so that every lock counts as renewed. Raises StoreError.
    """
    ours = find_actions(ref, lost, now)
    found = {id: act for id, act in ours.items() if act is not None}
    rest = [one for one in lost if one.id not in ours]
    now_as = dict(zip((one.id for one in rest), job_outcomes.endings(wire, ref, [one.id for one in rest]), strict=True))
    told = _told(wire, ref, rest, now_as) if has_events else {}
    unmoved = []
    for one in rest:
        ending = now_as[one.id]
        if ending is None:
            continue
        is_renewed = _is_renewed(one, ending, now, lock_length)
        by = _by(one, ending, told.get(one.id, set()), is_renewed=is_renewed)
        if by is None:
            unmoved.append(one.id)
        else:
            found[one.id] = IncidentResolution(by)
    here = job_outcomes.still_active(wire, ref, unmoved[:SEARCHED])
    return found | {id: IncidentResolution(NOBODY_KNOWN) for id in unmoved[:SEARCHED] if id not in here}


def _is_renewed(lost: UnresolvedJob, ending: JobOutcome, now: int, lock_length: int) -> bool:
    """Returns True if the lock was taken or renewed after the worker was missed. The known length is a bit short."""
    if not lost.had_lock or not lock_length or ending.ttl is None:
        return True
    return now - (lock_length - ending.ttl) > lost.opened_at + lock_length * _LEARNED


def _by(lost: UnresolvedJob, ending: JobOutcome, told: set[str], *, is_renewed: bool) -> str | None:
    """Returns who resolved it by the job's own fields; None if these are unchanged."""
    if not ending.is_there:
        return STALLED_CHECK if "stalled" in told else WORKER if told else REMOVED
    processed_at, starts, attempts, stalls = lost.signature or (None, None, 0, None)
    if stalls is not None and ending.stalls > stalls:
        return STALLED_CHECK
    if ending.is_finished:
        return WORKER
    is_same = lost.signature is None or (ending.processed_at, ending.starts) == (processed_at, starts)
    if ending.is_locked and not is_same:
        return NOBODY_KNOWN
    if ending.is_locked:
        return WORKER if is_renewed else None
    return None if is_same and ending.attempts == attempts else NOBODY_KNOWN


def _told(
    wire: CommandClient, ref: QueueRef, lost: Sequence[UnresolvedJob], now_as: Mapping[str, JobOutcome | None]
) -> Mapping[str, set[str]]:
    gone = [one.opened_at for one in lost if (ending := now_as[one.id]) and not ending.is_there]
    return job_outcomes.events(wire, ref, min(gone)) if gone else {}


def find_actions(ref: QueueRef, lost: Sequence[UnresolvedJob], now: int) -> dict[str, IncidentResolution | None]:
    """Returns the actions on these jobs in the audit; None for one that is still under way."""
    found: dict[str, IncidentResolution | None] = {}
    for start in range(0, len(lost), _AT_ONCE):
        part = {job_key(one.id): one for one in lost[start : start + _AT_ONCE]}
        rows = AuditJob.objects.filter(
            deployment=ref.deployment,
            base=ref.slug,
            job__in=part,
            entry__at__gte=min(one.opened_at for one in part.values()) - _SLACK,
        ).select_related("entry")
        for row in rows.order_by("entry_id"):
            one = part[row.job]
            if row.outcome == Outcome.DONE and row.entry.at >= one.opened_at - _SLACK:
                found[one.id] = IncidentResolution(
                    SCANNER if row.entry.actor_kind == SCANNER else OPERATOR, row.entry_id
                )
            elif not row.outcome and now - row.entry.at < UNDER_WAY:
                found.setdefault(one.id, None)
    return _with_outcomes(found)


def _with_outcomes(found: dict[str, IncidentResolution | None]) -> dict[str, IncidentResolution | None]:
    """Replaces the numbers of intent entries by those of their outcome entries."""
    intents = {act.audit for act in found.values() if act and act.audit}
    if not intents:
        return found
    rows = AuditEntry.objects.filter(intent__in=list(intents)[:_AT_ONCE], phase=OUTCOME).values_list("intent", "number")
    numbers = dict(rows)
    return {id: act and IncidentResolution(act.by, numbers.get(act.audit, act.audit)) for id, act in found.items()}
