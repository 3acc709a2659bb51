"""Actions of people on jobs that a scanner has to respect, read from the audit's index by job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from django.db.models import QuerySet

from recovery.domain.actions.types import Action, Outcome
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import QueueRef
from recovery.models import AuditJob

_AT_ONCE = 400  # names in one query: SQLite takes 999 of all kinds
_ENDS = (Action.CANCEL.value, Action.FAIL.value)
_RETURNS = (Action.RETRY.value, Action.REQUEUE.value)
_REMOVES = (Action.REMOVE.value, Action.CLEAN.value, Action.DRAIN.value)
# An action without an outcome may have been done.
_PERHAPS = ("", Outcome.DONE.value, Outcome.UNKNOWN.value)
_SCANNER = "scanner"


def jobs_ended_by_people(queue: QueueRef, ids: Sequence[str]) -> frozenset[str]:
    """Returns the jobs that a person cancelled or failed and that were not retried since. Raises DatabaseError."""
    found: set[str] = set()
    for part in _parts(ids):
        acts = _acts(queue, list(part), (*_ENDS, *_RETURNS)).exclude(entry__actor_kind=_SCANNER)
        rows = acts.order_by("entry_id").values_list("job", "entry__act", "outcome")
        # A retry revokes an earlier cancellation only if it was surely done.
        newest = {job: act for job, act, outcome in rows if act in _ENDS or outcome == Outcome.DONE.value}
        found |= {part[job] for job, act in newest.items() if act in _ENDS}
    return frozenset(found)


def removed_jobs(queue: QueueRef, ids: Sequence[str], since: int) -> frozenset[str]:
    """Returns the jobs that an action removed since then. Raises DatabaseError."""
    found: set[str] = set()
    for part in _parts(ids):
        acts = _acts(queue, list(part), _REMOVES).filter(entry__at__gte=since)
        found |= {part[job] for job in acts.values_list("job", flat=True)}
    return frozenset(found)


def _acts(queue: QueueRef, jobs: list[str], acts: Sequence[str]) -> QuerySet[AuditJob]:
    place = {"deployment": queue.deployment, "base": queue.slug, "job__in": jobs}
    return AuditJob.objects.filter(**place, entry__act__in=acts, outcome__in=_PERHAPS)


def _parts(ids: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yields batches of job ids by their keys in the index."""
    for start in range(0, len(ids), _AT_ONCE):
        yield {job_key(id): id for id in ids[start : start + _AT_ONCE]}
