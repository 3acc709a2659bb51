"""Presents jobs and executions of n8n's table, with links into n8n's own editor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.rows import Cells, brief
from recovery.config import N8n
from recovery.domain.n8n.claims import Claim
from recovery.domain.n8n.executions import Execution
from recovery.domain.n8n.mismatches import Mismatch, Repair
from recovery.domain.n8n.pairs import Pair, Truth
from recovery.domain.refs import shown
from recovery.reads.n8n.single import Single

MATCHES = "none"  # what the filter calls pairs that are as they should be
_NAMES = ("mismatch", "n8n", "execution")
_TONES = {
    Mismatch.ORPHANED: "stuck",
    Mismatch.NO_JOB: "stuck",
    Mismatch.DEAD_PARENT: "stuck",
    Mismatch.OVERDUE: "stuck",
    Mismatch.UNSEEN: "worker-lost",
    Mismatch.LEFT: "warn",
    Mismatch.DELETED: "warn",
    Mismatch.PAUSED: "warn",
    Mismatch.STOPPING: "",
}
REPAIRS = {
    Repair.NONE: "wait and check again",
    Repair.FAIL: "fail the job, so that the n8n main process is notified",
    Repair.REQUEUE: "requeue the job: none of its steps has run",
    Repair.CANCEL: "cancel it through n8n",
    Repair.REMOVE: "remove the job",
    Repair.RESUME: "resume the queue",
    Repair.CHECK_MAIN: "check that n8n's leading main process runs: it resumes waiting executions",
    Repair.CHECK: (
        "make sure that no worker runs it (wait, or restart the workers that are older than it), then mark it crashed"
    ),
    Repair.MARK: "mark the execution crashed, then retry it in n8n",
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

    def holds(self, truth: Truth, pair: Pair) -> bool:
        kind = pair.finding.kind.value if pair.finding else MATCHES
        return self.mismatch in ("", kind) and self.n8n in ("", truth.name) and self.execution.strip() in ("", pair.id)


def kinds(truths: Iterable[Truth], chosen: str) -> list[tuple[str, str]]:
    """Returns the mismatches to filter by, with how many there are."""
    counts: dict[Mismatch, int] = {}
    for truth in truths:
        for kind, count in truth.counts.items():
            counts[kind] = counts.get(kind, 0) + count
    found = [(kind.value, f"{kind.value} ({counts[kind]:,})") for kind in Mismatch if counts.get(kind)]
    known = {value for value, _ in found}
    if chosen and chosen not in (*known, MATCHES):
        found.append((chosen, f"{chosen} (0)"))
    return [*found, (MATCHES, "no mismatch")]


def line(pair: Pair, n8n: N8n | None) -> Cells:
    claim, execution, finding = pair.claim, pair.execution, pair.finding
    return {
        "anchor": f"pair-{pair.id}-{brief(claim.job.slug) if claim else ''}",
        "id": shown(pair.id),
        "editor": editor(n8n, pair.workflow, pair.id) if execution else "",
        "title": shown(pair.title) or shown(pair.workflow),
        **_execution(execution),
        **_job(claim),
        "mismatch": finding.kind.value if finding else "",
        "sentence": finding.kind.sentence if finding else "",
        "why": shown(finding.why) if finding else "",
        "fate": shown(finding.fate) if finding else "",
        "cause": shown(finding.cause) if finding else "",
        "repair": REPAIRS[finding.repair] if finding else "",
        "since": finding.since if finding else None,
        "tone": _TONES[finding.kind] if finding else "",
    }


def of_job(found: Single | None, rescue: str = "") -> Cells | None:
    """Returns n8n's part of a job's page. `rescue`: the possible rescue of its execution; "" where there is nothing."""
    if found is None:
        return None
    pair = found.pair
    return {
        "n8n": found.n8n.name,
        "id": found.id,
        "title": shown(found.title) or shown(found.workflow),
        "workflow": shown(found.workflow),
        "workflow_url": editor(found.n8n, found.workflow),
        "editor": editor(found.n8n, found.workflow, found.id) if found.execution else "",
        "fault": shown(found.fault),
        **_execution(found.execution),
        "line": line(pair, found.n8n) if pair and pair.finding else None,
        "rescue": rescue,
    }


def error_rates(truth: Truth, n8n: N8n | None) -> list[Cells]:
    """Returns one row per workflow with failures."""
    return [
        {
            "title": shown(rate.title) or shown(rate.workflow) or "unknown workflow",
            "url": editor(n8n, rate.workflow),
            "n8n": truth.name,
            "failed": rate.failed,
            "ended": rate.ended,
            "percent": f"{rate.percent:.0f} %" if rate.percent >= 1 else "< 1 %",
        }
        for rate in truth.error_rates or ()
    ]


def editor(n8n: N8n | None, workflow: str, execution: str = "") -> str:
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
        "mode": shown(execution.mode),
        "began": execution.began_at,
        "stopped": execution.stopped_at,
    }


def _job(claim: Claim | None) -> Cells:
    if claim is None:
        return {"job": "", "job_url": "", "state": "", "lock": "", "holder": "", "queue": ""}
    queue = claim.job.queue
    lock = "" if not claim.is_active else "unknown" if not claim.lock_known else "held" if claim.lock else "none"
    return {
        "job": brief(claim.job.label),
        "job_url": reverse("job", args=[queue.deployment, queue.base, claim.job.id]),
        "state": claim.state.value,
        "lock": lock,
        "holder": shown(claim.holder),
        "queue": queue.label,
    }
