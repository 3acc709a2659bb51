"""/audit/<number>/restore: restores the jobs that an action removed, confirmed with a reason like every action."""

from __future__ import annotations

import json

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, needs
from dashboard.actions import action_results
from recovery.actions import runner, undo
from recovery.actions.audit.audit_log import REASON_LIMIT
from recovery.domain.actions.types import Action, ActionCommand
from recovery.errors import Missing
from recovery.reads.audit import queries as book

NAMED = 10  # jobs named in the dialog


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.OPERATOR)
def restore(request: HttpRequest, number: int) -> HttpResponse:
    """Asks for a reason, then restores. Needs no second check: undo copies never change, and the Lua script refuses
    an id that is in use again.
    """
    entry = book.load_entry(number)
    reason = request.POST.get("reason", "").strip()[:REASON_LIMIT]
    if request.method != "POST" or not reason:
        return _ask(request, number, wrong="Enter a reason." if request.method == "POST" else "")
    results = runner.restore(number, actors.actor_from_request(request), reason)
    if entry.queue is None:
        raise Missing("This entry removed no jobs.")
    order = ActionCommand(Action.RESTORE, entry.queue, actors.actor_from_request(request), reason)
    told = action_results.result_message(Action.RESTORE, [(order, result) for result in results])
    back = reverse("audit-entry", args=[number])
    if not request.headers.get("HX-Request"):
        return render(request, "actions/outcome.html", {"outcome": told, "back": back})
    if told.is_plain:
        response = HttpResponse(status=204)
        response["HX-Trigger"] = json.dumps({"unstall:acted": None, "unstall:toast": told.toast})
        return response
    return render(request, "actions/_done.html", {"outcome": told, "back": back})


def _ask(request: HttpRequest, number: int, wrong: str = "") -> HttpResponse:
    found = undo.load_restorable(number)
    context = {
        "number": number,
        "queue": found.queue,
        "jobs": found.jobs[::-1][:NAMED],
        "count": len(found.jobs),
        "more": max(0, len(found.jobs) - NAMED),
        "wrong": wrong,
        "back": reverse("audit-entry", args=[number]),
    }
    is_dialog = "HX-Request" in request.headers
    template = "actions/_restore.html" if is_dialog else "actions/restore.html"
    return render(request, template, context | {"is_page": not is_dialog})
