"""Presents entries of the audit log: who did what to which job, and the outcome."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.urls import reverse

from dashboard.base.job_rows import Cells, brief
from recovery.actions.undo_store import LIFE_MS
from recovery.domain.actions.types import Outcome
from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow
from recovery.domain.time_units import age
from recovery.reads.audit.queries import AuditActionDetail, AuditedJob, AuditRow

_FACTS = (("attempts", "attempts"), ("starts", "starts"), ("stalls", "stalls"), ("priority", "priority"))


def cells(line: AuditRow, now: int, restorable: Mapping[int, int]) -> Cells:
    status = line.status(now)
    queue = line.queue
    return {
        "line": line,
        "url": reverse("audit-entry", args=[line.number]),
        "act": _act(line),
        "who": printable(line.actor),
        "address": printable(line.address),
        "reason": printable(line.reason),
        "queue": queue.label if queue else "",
        "queue_url": reverse("queue", args=[queue.deployment, queue.base]) if queue else "",
        "job": brief(printable(line.job)) if line.job else "",
        "job_url": reverse("job", args=[queue.deployment, queue.base, line.job]) if queue and line.job else "",
        "status": status,
        "outcomes": [(name, f"{count:,} {name}") for name, count in line.tally.items()] if line.count > 1 else [],
        "is_unknown": status == Outcome.UNKNOWN.value,
        "took": age(line.ended_at - line.at) if line.ended_at and line.ended_at - line.at >= 1000 else "",
        "restorable": restorable.get(line.number, 0),
        "restore_until": line.at + LIFE_MS,
        "tone": "warn" if status in (Outcome.UNKNOWN.value, "mixed") else "",
    }


def _act(line: AuditRow) -> str:
    if line.phase == "note":
        return printable(line.act)
    if line.is_on_queue:
        return f"{line.act} the queue"
    return f"{line.act} {line.count:,} job{'s' * (line.count != 1)}"


def job_outcomes(detail: AuditActionDetail, present: Mapping[str, JobRow | None]) -> list[Cells]:
    """Returns each job of an action. `present`: the current state of those whose outcome is unknown."""
    queue = detail.entry.queue
    found = []
    for fate in detail.jobs:
        where = reverse("job", args=[queue.deployment, queue.base, fate.id]) if queue and fate.id else ""
        found.append(
            {
                "id": brief(printable(fate.id)) if fate.id else "the queue",
                "url": where,
                "name": printable(str(fate.before.get("name", ""))),
                "before": _told(fate.before),
                "after": _told(fate.after),
                "outcome": fate.outcome or Outcome.UNKNOWN.value,
                "why": printable(fate.why),
                "verdict": printable(str(fate.verdict.get("kind", ""))),
                "verdict_why": printable(str(fate.verdict.get("why", ""))),
                "affected": [_other(one) for one in fate.affected],
                "affected_more": max(0, fate.affected_total - len(fate.affected)),
                "was_kept": fate.was_kept,
                "now": _now(fate, present),
            }
        )
    return found


def _other(one: Mapping[str, Any]) -> str:
    """Describes a child or a parent that changed with a job."""
    deployment, _, base = str(one.get("queue", "")).partition("/")
    return printable(f"{base} {one.get('job', '')} {one.get('change', '')}") if deployment else ""


def options(told: Mapping[str, Any]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {_yes(value)}" for name, value in sorted(told.items()) if value != "")


def unknown_ids(detail: AuditActionDetail) -> Iterable[str]:
    return [fate.id for fate in detail.jobs if fate.id and fate.outcome in ("", Outcome.UNKNOWN.value)]


def _told(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Describes a job's state, and the counters that an action may change."""
    if not facts:
        return {}
    parts = [f"{facts[name]:,} {words}" for name, words in _FACTS if isinstance(facts.get(name), int)]
    lock = facts.get("lock")
    if isinstance(lock, dict):
        parts.append("locked")
    return {"state": printable(str(facts.get("state", "unknown"))), "words": ", ".join(parts)}


def _now(fate: AuditedJob, present: Mapping[str, JobRow | None]) -> str:
    if fate.id not in present:
        return ""
    row = present[fate.id]
    if row is None:
        return "Now: the job does not exist."
    state = f"{row.state}{', locked' if row.lock else ''}"
    return f"Now: {state}, {row.attempts:,} attempts made, stalled {row.stalls:,} times."


def _yes(value: Any) -> str:
    return (
        {True: "yes", False: "no"}.get(value, printable(str(value)))
        if isinstance(value, bool)
        else printable(str(value))
    )
