"""Presents jobs and executions of n8n's table, with links into n8n's own editor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.base.job_rows import Cells, brief
from recovery.config import N8nInstallation
from recovery.domain.identifiers import printable
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.n8n.job_execution import JobExecution

MATCHES = "none"  # what the filter calls pairs that are as they should be
_NAMES = ("mismatch", "n8n", "execution")
_TONES = {
    MismatchKind.ORPHANED: "stuck",
    MismatchKind.NO_JOB: "stuck",
    MismatchKind.DEAD_PARENT: "stuck",
    MismatchKind.OVERDUE: "stuck",
    MismatchKind.UNSEEN: "worker-lost",
    MismatchKind.LEFT: "warn",
    MismatchKind.DELETED: "warn",
    MismatchKind.PAUSED: "warn",
    MismatchKind.STOPPING: "",
}
REPAIRS = {
    MismatchRepair.NONE: "wait and check again",
    MismatchRepair.FAIL: "fail the job, so that the n8n main process is notified",
    MismatchRepair.REQUEUE: "requeue the job: none of its steps has run",
    MismatchRepair.CANCEL: "cancel it through n8n",
    MismatchRepair.REMOVE: "remove the job",
    MismatchRepair.RESUME: "resume the queue",
    MismatchRepair.CHECK_MAIN: "check that n8n's leading main process runs: it resumes waiting executions",
    MismatchRepair.CHECK: (
        "make sure that no worker runs it (wait, or restart the workers that are older than it), then mark it crashed"
    ),
    MismatchRepair.MARK: "mark the execution crashed, then retry it in n8n",
}


@dataclass(frozen=True, slots=True)
class PairFilter:
    """Filter of n8n's table, from the URL; empty: all mismatches, and an excerpt of the rest below."""

    mismatch: str = ""
    n8n: str = ""
    execution: str = ""

    @classmethod
    def of(cls, asked: Mapping[str, str]) -> PairFilter:
        return cls(*(asked.get(name, "")[:40] for name in _NAMES))

    @property
    def told(self) -> dict[str, str]:
        return {name: value for name in _NAMES if (value := getattr(self, name))}

    @property
    def words(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.told.items())

    @property
    def address(self) -> str:
        return f"?{urlencode(self.told)}" if self.told else "?"

    def __bool__(self) -> bool:
        return bool(self.told)

    def holds(self, truth: N8nComparison, pair: JobExecutionPair) -> bool:
        kind = pair.finding.kind.value if pair.finding else MATCHES
        return self.mismatch in ("", kind) and self.n8n in ("", truth.name) and self.execution.strip() in ("", pair.id)


def kinds(truths: Iterable[N8nComparison], chosen: str) -> list[tuple[str, str]]:
    """Returns the mismatches to filter by, with how many there are."""
    counts: dict[MismatchKind, int] = {}
    for truth in truths:
        for kind, count in truth.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    found = [(kind.value, f"{kind.value} ({counts[kind]:,})") for kind in MismatchKind if counts.get(kind)]
    known = {value for value, _ in found}
    if chosen and chosen not in (*known, MATCHES):
        found.append((chosen, f"{chosen} (0)"))
    return [*found, (MATCHES, "no mismatch")]


def line(pair: JobExecutionPair, n8n: N8nInstallation | None) -> Cells:
    claim, execution, finding = pair.claim, pair.execution, pair.finding
    return {
        "anchor": f"pair-{pair.id}-{brief(claim.job.slug) if claim else ''}",
        "id": printable(pair.id),
        "editor": editor(n8n, pair.workflow, pair.id) if execution else "",
        "title": printable(pair.title) or printable(pair.workflow),
        **_execution(execution),
        **_job(claim),
        "mismatch": finding.kind.value if finding else "",
        "sentence": finding.kind.sentence if finding else "",
        "why": printable(finding.why) if finding else "",
        "fate": printable(finding.fate) if finding else "",
        "cause": printable(finding.cause) if finding else "",
        "repair": REPAIRS[finding.repair] if finding else "",
        "since": finding.since if finding else None,
        "tone": _TONES[finding.kind] if finding else "",
    }


def job_section(found: JobExecution | None, rescue: str = "") -> Cells | None:
    """Returns n8n's part of a job's page. `rescue`: the possible rescue of its execution; "" where there is nothing."""
    if found is None:
        return None
    pair = found.pair
    return {
        "n8n": found.n8n.name,
        "id": found.id,
        "title": printable(found.title) or printable(found.workflow),
        "workflow": printable(found.workflow),
        "workflow_url": editor(found.n8n, found.workflow),
        "editor": editor(found.n8n, found.workflow, found.id) if found.execution else "",
        "fault": printable(found.fault),
        **_execution(found.execution),
        "line": line(pair, found.n8n) if pair and pair.finding else None,
        "rescue": rescue,
    }


def error_rates(truth: N8nComparison, n8n: N8nInstallation | None) -> list[Cells]:
    """Returns one row per workflow with failures."""
    return [
        {
            "title": printable(rate.title) or printable(rate.workflow) or "unknown workflow",
            "url": editor(n8n, rate.workflow),
            "n8n": truth.name,
            "failed": rate.failed,
            "ended": rate.ended,
            "percent": f"{rate.percent:.0f} %" if rate.percent >= 1 else "< 1 %",
        }
        for rate in truth.error_rates or ()
    ]


def editor(n8n: N8nInstallation | None, workflow: str, execution: str = "") -> str:
    """Returns a URL in n8n's editor; "" if its address is not configured."""
    if n8n is None or not n8n.editor or not workflow:
        return ""
    place = f"{n8n.editor}/workflow/{quote(workflow, safe='')}"
    return f"{place}/executions/{quote(execution, safe='')}" if execution else place


def _execution(execution: Execution | None) -> Cells:
    if execution is None:
        return {"status": "not in the database", "mode": "", "began": None, "stopped": None}
    status = f"{execution.status} (deleted)" if execution.is_deleted else str(execution.status)
    return {
        "status": status,
        "mode": printable(execution.mode),
        "began": execution.began_at,
        "stopped": execution.stopped_at,
    }


def _job(claim: N8nJob | None) -> Cells:
    if claim is None:
        return {"job": "", "job_url": "", "state": "", "lock": "", "holder": "", "queue": ""}
    queue = claim.job.queue
    lock = "" if not claim.is_active else "unknown" if not claim.lock_known else "held" if claim.lock else "none"
    return {
        "job": brief(claim.job.label),
        "job_url": reverse("job", args=[queue.deployment, queue.base, claim.job.id]),
        "state": claim.state.value,
        "lock": lock,
        "holder": printable(claim.holder),
        "queue": queue.label,
    }
