"""Presents verdicts: the word with its colour, the evidence, what happens without intervention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.base.job_rows import Cells, LockBar, brief
from dashboard.base.url_identifiers import job_url_ref
from recovery.actions.catalog import ENTRIES
from recovery.domain.identifiers import printable
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.reads.audit.queries import CompletedAction

_TONES = {
    VerdictKind.ORPHAN: "stuck",
    VerdictKind.ABANDONED: "stuck",
    VerdictKind.WORKER_LOST: "worker-lost",
    VerdictKind.UNLOCKED: "worker-lost",
    VerdictKind.LATE: "warn",
    VerdictKind.OVERDUE: "overdue",
    VerdictKind.MISSING_DATA: "unreadable",
    VerdictKind.UNKNOWN: "unreadable",
    VerdictKind.STRAY: "warn",
    VerdictKind.MALFORMED: "warn",
    VerdictKind.N8N: "warn",
    VerdictKind.RUNNING: "",
}


def cells(verdict: Verdict) -> Cells:
    return {
        "verdict": verdict,
        "badge": verdict.kind.value,
        "is_quarantined": verdict.is_quarantined,
        "why": printable(verdict.why),
        "cause": "" if verdict.cause is LossCause.UNKNOWN else verdict.cause.value,
        "cause_why": printable(verdict.cause_evidence).rstrip("."),
        "fate": printable(verdict.fate) or "unknown.",
        "times": _times(verdict),
        "tone": "stuck" if verdict.is_quarantined else _TONES[verdict.kind],
    }


def line(stuck: StuckJob) -> Cells:
    """Returns the cells of one line of the list of stuck jobs."""
    queue = stuck.job.queue
    return {
        **cells(stuck.verdict),
        "anchor": f"stuck-{brief(stuck.job.slug)}-{queue.slug}" if stuck.has_job else f"execution-{stuck.execution}",
        "pick": job_url_ref(stuck.job) if stuck.has_job and stuck.verdict.kind is not VerdictKind.N8N else "",
        "id": brief(stuck.job.label) if stuck.has_job else f"execution {stuck.execution}",
        "name": printable(stuck.name),
        "url": _url(stuck),
        "queue": queue.label,
        "queue_url": f"{reverse('queue', args=[queue.deployment, queue.base])}?tab=active",
        "since": stuck.since or None,
        "holder": printable(stuck.holder),
        "server": printable(stuck.server),
    }


def completed_cells(act: CompletedAction) -> Cells:
    """Returns the cells that replace verdict and buttons of a line once an action was completed on its job."""
    return {
        "done": act,
        "did": ENTRIES[act.act].done,
        "actor": printable(act.actor),
        "pick": "",
        "tone": "",
        "acts": None,
    }


def _url(stuck: StuckJob) -> str:
    """Returns the URL of the job; for an execution without one, that of its line in n8n's table."""
    if not stuck.has_job:
        return f"{reverse('n8n')}?{urlencode({'execution': stuck.execution})}"
    return reverse("job", args=[stuck.job.queue.deployment, stuck.job.queue.base, stuck.job.id])


def lock(bar: LockBar, verdict: Verdict | None) -> LockBar:
    """Returns the lock's bar in the verdict's colour."""
    return bar if verdict is None else replace(bar, verdict=verdict.kind.value)


def _times(verdict: Verdict) -> str:
    """Says how often the job was orphaned in the last 72 hours; if it is an orphan now, this time counts."""
    count: Any = verdict.orphaned
    if not count:
        return ""
    return "orphaned once before" if count == 1 else f"orphaned {count:,} times before"
