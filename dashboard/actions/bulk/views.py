"""/bulk/<id>: shows the progress of a bulk run and the result for each job, and lets an operator stop or resume it."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import actors, reauthentication
from dashboard.accounts.roles import UserRole, needs
from dashboard.actions import buttons
from dashboard.base.job_rows import Cells, brief
from recovery import shared_clock
from recovery.actions.bulk import bulk_runs
from recovery.actions.catalog import ENTRIES
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef, printable
from recovery.reads.bulk import queries as runs
from recovery.reads.bulk.queries import BulkJobResult, BulkProgress

_LEFT = "left"
_WORDS = {
    "waiting": "The scheduler has not started it yet.",
    "gathering": "Finding the jobs.",
    "running": "It continues when you leave this page.",
    "stopped": "Changes made so far remain.",
    "failed": "It could not continue.",
}


@require_safe
def page(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "actions/bulk/page.html", _context(request, pk))


@require_safe
def progress(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "actions/bulk/_progress.html", _context(request, pk))


@require_safe
def numbers(request: HttpRequest, pk: int) -> HttpResponse:
    """Returns the numbers only, for the dialog that started the run: live updates wait until a dialog is closed."""
    return render(request, "actions/bulk/_numbers.html", _numbers(runs.progress(pk, _now())))


@require_POST
@needs(UserRole.OPERATOR)
def stop(request: HttpRequest, pk: int) -> HttpResponse:
    runs.progress(pk, _now())
    if not bulk_runs.stop(pk, actors.actor_from_request(request)):
        messages.warning(request, "It has already ended or is being stopped.")
    return redirect("bulk", pk)


@require_POST
@needs(UserRole.OPERATOR)
def go_on(request: HttpRequest, pk: int) -> HttpResponse:
    """Resumes a stopped run; one that deletes or fails jobs needs the password again, as at its start."""
    run = runs.progress(pk, _now())
    if ENTRIES[Action(run.act)].tone == "danger" and not reauthentication.is_recent(request):
        return reauthentication.ask(request, reverse("bulk", args=[pk]))
    if not bulk_runs.resume(pk, actors.actor_from_request(request)):
        messages.warning(request, "Only a stopped run can be resumed.")
    return redirect("bulk", pk)


def _context(request: HttpRequest, pk: int) -> dict[str, Any]:
    run = runs.progress(pk, _now())
    chosen = _chosen(request)
    found = runs.results(pk, outcome=chosen, cursor=request.GET.get("cursor", ""))
    return {
        **_numbers(run),
        "queue_url": reverse("queue", args=[run.queue.deployment, run.queue.base]),
        "title": f"{ENTRIES[Action(run.act)].label} in bulk",
        "outcomes": _outcomes(run, chosen),
        "items": [_item(item, run.queue) for item in found.rows],
        "first": _link(chosen) if request.GET.get("cursor") else "",
        "next": _link(chosen, found.next) if found.next else "",
        "link": _link(chosen, request.GET.get("cursor", "")),
        "may_stop": buttons.action_permissions(request.user).do(Action(run.act), many=True),
    }


def _numbers(run: BulkProgress) -> dict[str, Any]:
    return {
        "run": run,
        "queue": run.queue,
        "words": _WORDS.get(run.status, ""),
        "rate": None if run.rate is None else round(run.rate) if run.rate >= 10 else round(run.rate, 1),
        "took": (run.ended_at or _now()) - run.started_at if run.started_at else None,
        "skipped": run.settled - run.done - run.unknown,
        "left": max(0, run.total - run.settled),
    }


def _outcomes(run: BulkProgress, chosen: str) -> list[Cells]:
    """Returns the outcomes with their counts, without empty ones; "left" are the jobs not tried yet."""
    counts = [("", "All", run.total), (_LEFT, "pending", run.total - run.settled)]
    counts += [(outcome.value, outcome.value, getattr(run, outcome.value)) for outcome in Outcome]
    return [
        {"name": name, "title": title, "count": count, "is_chosen": name == chosen, "url": _link(name)}
        for name, title, count in counts
        if not name or count > 0 or name == chosen
    ]


def _item(item: BulkJobResult, queue: QueueRef) -> Cells:
    return {
        "place": item.place,
        "label": brief(printable(item.job)),
        "url": reverse("job", args=[queue.deployment, queue.base, item.job]),
        "outcome": item.outcome,
        "why": printable(item.why),
        "audit": item.audit,
    }


def _chosen(request: HttpRequest) -> str:
    written = request.GET.get("outcome", "")
    return written if written in {_LEFT, *(outcome.value for outcome in Outcome)} else ""


def _link(outcome: str, cursor: str = "") -> str:
    told = {"outcome": outcome, "cursor": cursor}
    return f"?{urlencode({name: value for name, value in told.items() if value})}"


def _now() -> int:
    return shared_clock.now()
