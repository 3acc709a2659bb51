"""Counts actions on jobs and queues by action, outcome and kind of actor, from the audit entries since the last run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from django.db.models import Count

from recovery.actions.audit.audit_log import OUTCOME
from recovery.domain.metrics.counters import ActKey, MetricCounters
from recovery.models import AuditEntry, AuditHead, AuditJob

FIRST = 10_000  # entries that the first run counts: a long audit is not read through for a counter
AT_ONCE = 400  # entries in one query: SQLite takes 999 names of all kinds
MOST = 50  # queries a run: the rest is counted by the next one


def count_actions(before: MetricCounters | None) -> tuple[Mapping[ActKey, int], int]:
    """Returns the sums, and the number of the last audit entry in them. Numbers have no gaps and rise with each commit,
    so nothing is missed and nothing counts twice. Raises Error of the database.
    """
    head = AuditHead.objects.values_list("number", flat=True).first() or 0
    counted = Counter(before.acts if before else {})
    # A database that was set back has a shorter audit: its entries are others.
    audited = before.audited if before and before.audited <= head else max(0, head - FIRST)
    for _ in range(MOST):
        if audited >= head:
            break
        until = min(head, audited + AT_ONCE)
        counted.update(_between(audited, until))
        audited = until
    return counted, audited


def _between(first: int, last: int) -> Counter[ActKey]:
    """Counts the entries in between. Jobs belong to the intent, and have an outcome once that entry is written."""
    told = AuditEntry.objects.filter(number__gt=first, number__lte=last, phase=OUTCOME)
    intents = {intent: (act, kind) for intent, act, kind in told.values_list("intent", "act", "actor_kind")}
    found: Counter[ActKey] = Counter()
    listed = AuditJob.objects.filter(entry_id__in=intents).exclude(outcome="")
    for entry, outcome, count in listed.values_list("entry_id", "outcome").annotate(Count("id")).order_by("entry_id"):
        act, kind = intents[entry]
        found[act, outcome, kind] += count
    return found
