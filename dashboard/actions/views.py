"""/act: shows what an action will change, for how many jobs and at what risk; once confirmed, performs exactly that.

1. GET shows the dialog (a page without scripts) with a signed token of what it shows.
2. POST checks again. If anything differs from what was shown, it shows the current state and changes nothing.
3. Else the action is performed, at once or, for many jobs, by the scheduler.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.accounts import actors, reauthentication
from dashboard.accounts.roles import UserRole, needs
from dashboard.actions import action_preview, action_request, action_results, confirmation, option_fields
from dashboard.actions.action_preview import ActionPreview
from dashboard.actions.action_request import ActionRequest, InvalidRequest
from dashboard.actions.confirmation import StaleConfirmation
from dashboard.base.error_pages import ErrorPage, render_error
from recovery import shared_clock

MOVED_SHOWN = 5
ADDRESS_LIMIT = 8_000  # characters of a dialog's URL to which the password page leads back
REASON_LIMIT = 500  # characters, as the audit keeps them
_NO_REASON = "Enter a reason. It is recorded in the audit log."


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.OPERATOR)
def act(request: HttpRequest) -> HttpResponse:
    try:
        asked = ActionRequest.of(request.GET)
        options = action_request.options(asked.act, request.POST, shown=request.method == "POST")
    except InvalidRequest as wrong:
        return render_error(
            request, ErrorPage(400, "This cannot be done", str(wrong), link=reverse("stuck"), link_text="Stuck")
        )
    actor, reason, now = actors.actor_from_request(request), _reason(request), shared_clock.now()

    def look(among: Collection[str] | None = None) -> ActionPreview:
        return action_preview.preview_action(asked, actor, options, reason, now, among=among)

    if request.method != "POST" or request.POST.get("step") != "confirm":
        proposal = look()
        return _password(request, asked) if _needs_password(request, proposal) else _ask(request, proposal)
    return _confirmed(request, asked, look)


def _needs_password(request: HttpRequest, proposal: ActionPreview) -> bool:
    """Returns True before many jobs are deleted, failed or stopped; requeueing never needs the password."""
    return bool(proposal.word) and proposal.entry.tone == "danger" and not reauthentication.is_recent(request)


def _password(request: HttpRequest, asked: ActionRequest) -> HttpResponse:
    here = request.get_full_path()
    return reauthentication.ask(request, here if len(here) < ADDRESS_LIMIT else back(asked))


def _confirmed(request: HttpRequest, asked: ActionRequest, look: Callable[..., ActionPreview]) -> HttpResponse:
    """Performs the action if the token is valid and nothing differs from what was shown; else asks again."""
    try:
        shown = confirmation.read(request.user, request.POST.get("token", ""))
    except StaleConfirmation as stale:
        return _ask(request, look(), f"{stale} Check it again; nothing was changed.")
    proposal = look(shown.jobs)
    now = proposal.shown
    if shown.order != now.order:
        return _ask(request, look(), "You changed the options. Check the result again; nothing was changed.")
    if moved := shown.moved(now):
        return _ask(request, look(), "Jobs changed since this was shown. This is the current state.", moved)
    if wrong := _wrong(request, proposal):
        return _ask(request, proposal, errors=wrong)
    if _needs_password(request, proposal):
        return _password(request, asked)
    outcome = action_results.carry_out(proposal, shown.at)
    return _told(request, proposal, outcome)


def _wrong(request: HttpRequest, proposal: ActionPreview) -> dict[str, str]:
    wrong = {} if _reason(request) else {"reason": _NO_REASON}
    if proposal.word and request.POST.get("word", "").strip() != proposal.word:
        wrong["word"] = f"The text does not match “{proposal.word}”."
    return wrong


def _ask(
    request: HttpRequest,
    proposal: ActionPreview,
    notice: str = "",
    moved: list[str] | None = None,
    errors: dict[str, str] | None = None,
) -> HttpResponse:
    moved = moved or []
    options = proposal.options
    context = {
        "asked": proposal.asked,
        "proposal": proposal,
        "choices": option_fields.choices(proposal.asked.act, options, proposal.needs, of_rows=proposal.of_rows),
        "token": confirmation.token(request.user, proposal.shown),
        "reason": request.POST.get("reason", "")[:REASON_LIMIT],
        "word": request.POST.get("word", ""),
        "notice": notice,
        "moved": moved[:MOVED_SHOWN],
        "more_moved": max(0, len(moved) - MOVED_SHOWN),
        "errors": errors or {},
        "back": back(proposal.asked),
    }
    # A dialog with errors has status 200 too, because htmx shows only such responses.
    response = render(request, "actions/_dialog.html" if _is_dialog(request) else "actions/page.html", context)
    response["HX-Push-Url"] = "false"  # the dialog's URL does not belong into the browser history
    return response


def _told(request: HttpRequest, proposal: ActionPreview, outcome: action_results.ActionResultMessage) -> HttpResponse:
    """Shows the result: a toast if all went well, progress for many jobs, a page of its own without scripts."""
    if outcome.runs and not _is_dialog(request) and len(outcome.runs) == 1:
        return redirect("bulk", outcome.runs[0].pk)
    context: dict[str, Any] = {"outcome": outcome, "back": back(proposal.asked)}
    if not _is_dialog(request):
        return render(request, "actions/outcome.html", context)
    if outcome.is_plain:
        response = HttpResponse(status=204)
        response["HX-Trigger"] = json.dumps({"unstall:acted": None, "unstall:toast": outcome.toast})
        return response
    return render(request, "actions/_done.html", context)


def back(asked: ActionRequest) -> str:
    """Returns the URL the user came from, or that of the nearest page."""
    if asked.back:
        return asked.back
    queues = [*asked.queues, *([asked.queue] if asked.queue else [])]
    if len(queues) == 1:
        return reverse("queue", args=[queues[0].deployment, queues[0].base])
    return reverse("stuck")


def _reason(request: HttpRequest) -> str:
    return request.POST.get("reason", "").strip()[:REASON_LIMIT]


def _is_dialog(request: HttpRequest) -> bool:
    return "HX-Request" in request.headers
