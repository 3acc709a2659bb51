"""Presents scanners and their runs: the state of each, the result of its last run, and what was done to which job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.urls import reverse

from dashboard.base.job_rows import Cells, brief
from dashboard.base.redaction import PayloadRedactor
from recovery.domain.identifiers import printable
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.time_units import elapsed
from recovery.reads.scanners.queries import ScannerCard, ScannerFindRow, ScannerRunRow

Acting = Mapping[PolicyScanner, tuple[int, int]]  # in how many queues it may act, and of how many
_HOW = {"person": "", "token": "token ", "shell": "shell of ", "scanner": ""}


def card(found: ScannerCard, acting: Acting, see: PayloadRedactor) -> Cells:
    pulse = found.pulse
    return {
        "card": found,
        "name": found.scan.value,
        "url": reverse("scanner", args=[found.scan.value]),
        "state": state(found),
        "words": "healthy" if state(found) == "works" else state(found).replace("-", " "),
        "armed": enabled_queues(found.scan, acting),
        "every": elapsed(int(found.every * 1000)),
        "took": elapsed(pulse.took) if pulse else "",
        "tone": {"failing": "bad", "late": "warn"}.get(state(found), ""),
        "trouble": see.text(printable(found.trouble)),
        "run_url": reverse("scan-run", args=[found.open.id]) if found.open else "",
    }


def state(found: ScannerCard) -> str:
    """Returns the scanner's state in one word: what a user has to know of it first."""
    if found.pause is not None:
        return "paused"
    if found.pulse is None:
        return "unknown" if found.trouble else "never-ran"
    if found.pulse.has_failed:
        return "failing"
    return "late" if found.is_late else "works"


def enabled_queues(scan: ScannerKind, acting: Acting) -> Cells:
    """Says in how many queues the scanner is enabled; empty for one that never acts."""
    if not scan.may_act:
        return {}
    count, of = acting[PolicyScanner(scan.value)]
    what = "job table" if scan is ScannerKind.STARTUP_SWEEP else "queue"
    if not of:
        words = f"no {what} is known"
    elif count in (0, of):
        words = f"in all {of:,} {what}s" if of > 1 else f"in the only {what}"
    else:
        words = f"in {count:,} of {of:,} {what}s"
    return {"state": ("enabled" if count else "dry-run") if of else "", "words": words}


def run(found: ScannerRunRow) -> Cells:
    queue = found.queue
    return {
        "run": found,
        "url": reverse("scan-run", args=[found.id]),
        "scanner_url": reverse("scanner", args=[found.scan.value]),
        "took": elapsed(found.took) if found.took is not None else "",
        "why": _asked(found),
        "reason": printable(found.reason),
        "queue": queue.label if queue else "",
        "queue_url": reverse("queue", args=[queue.deployment, queue.base]) if queue else "",
        "state": "failed" if found.status == "ended" and found.trouble else found.status.value,
        "tone": "warn" if found.trouble or found.holds else "",
    }


def _asked(found: ScannerRunRow) -> str:
    """Returns who requested the run; "" when it was scheduled."""
    if found.actor is None:
        return ""
    return _HOW.get(found.actor.kind, "") + printable(found.actor.name)


def find(found: ScannerFindRow, see: PayloadRedactor) -> Cells:
    """Presents what a run found. An error of a job may stand in each of the texts, so all are redacted."""
    queue = found.job.queue
    id = found.job.id
    return {
        "find": found,
        "queue": queue.label,
        "queue_url": reverse("queue", args=[queue.deployment, queue.base]),
        "id": brief(found.job.label) if id else "the queue itself",
        "url": reverse("job", args=[queue.deployment, queue.base, id]) if id else "",
        "what": see.text(printable(found.what)),
        "why": see.text(printable(found.why)),
        "policy": see.text(printable(found.policy)),
        "outcome": found.outcome,
        "act": found.act,
    }


def order_words(scan: ScannerKind, acting: Acting) -> str:
    """Says what a run that is no dry run may change, for the user who is about to start one."""
    count, of = acting[PolicyScanner(scan.value)]
    if not of:
        return "There are no queues for it to check."
    if not count:
        return "No changes: it is in dry run in every policy."
    where = f"{count:,} of {of:,} queue{'s' * (of != 1)}"
    return f"It may change jobs in {where}, as their policies allow; elsewhere it only reports."


WITHOUT: Mapping[ScannerKind, str] = {
    ScannerKind.ORPHAN_WATCH: "It still checks, so /stuck stays correct, but it requeues nothing.",
    ScannerKind.STALE_CHECK: "Jobs that the orphan-watch may not change stay stuck until a user or the library "
    "recovers them.",
    ScannerKind.AUTO_RETRY: "Failed jobs stay failed until a user retries them.",
    ScannerKind.STARTUP_SWEEP: "Rows of a dead process stay running until a user requeues them.",
    ScannerKind.PRUNE: "Stored data grows: audit log, runs, history.",
}


def scanner_context(scan: ScannerKind) -> dict[str, Any]:
    return {"scan": scan, "about_scan": scan.purpose, "without": WITHOUT.get(scan, "")}
