"""/scanners/policy: shows and edits the policy of a queue, a deployment or all; a change is previewed and confirmed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_safe

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, allows, needs
from dashboard.actions.action_request import InvalidRequest
from dashboard.base import dialogs
from dashboard.base.error_pages import ErrorPage, render_error
from dashboard.live import state_cache
from dashboard.scanners.policies import policy_form, policy_table
from dashboard.scanners.policies.policy_table import PolicyTarget
from dashboard.scanners.policies.queue_summary import scanners_of
from recovery import config, shared_clock
from recovery.actions import policy_edits
from recovery.actions.policy_edits import PolicyPreview
from recovery.domain.policies.policy_layers import PolicySource, ResolvedPolicy
from recovery.domain.policies.types import PolicyScanner
from recovery.errors import BadOrder
from recovery.reads.policies.queries import PolicySnapshot
from recovery.reads.policies.queries import edited_values as written_at

TERM_LIMIT = 200  # characters of a filter
LIFE_SECONDS = 1800  # deciding on a policy takes longer than on one job
_SALT = "unstall.policy"
_DIGITS = 6  # of the number of the first row
_CHANGED = "The preview is out of date. Check the changes again; nothing was changed."


@require_safe
def table(request: HttpRequest) -> HttpResponse:
    """Returns the table of /scanners for htmx; a browser that opens the URL is redirected to the whole page."""
    if "HX-Request" not in request.headers:
        return redirect(f"{reverse('scanners')}{_link(*_asked(request))}#policies")
    return render(request, "scanners/policies/_table.html", context(request))


def context(request: HttpRequest) -> dict[str, Any]:
    """Returns the context of the table, filtered and paged by `?q=` and `?from=`."""
    term, start = _asked(request)
    book = PolicySnapshot.open(config.current())
    found = policy_table.table(book, state_cache.newest_snapshot(), config.current(), _now(), term=term, start=start)
    return {
        "policies": found,
        "policy_trouble": book.trouble,
        "term": term,
        "policy_link": _link(term, start),
        "before_link": "" if found.before is None else f"{reverse('scanners')}{_link(term, found.before)}",
        "after_link": "" if found.after is None else f"{reverse('scanners')}{_link(term, found.after)}",
        "may_edit": allows(request.user, UserRole.ADMIN),
    }


def _asked(request: HttpRequest) -> tuple[str, int]:
    term, written = request.GET.get("q", "")[:TERM_LIMIT].strip(), request.GET.get("from", "")
    return term, int(written) if written.isascii() and written.isdigit() and len(written) <= _DIGITS else 0


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.ADMIN)
def edit(request: HttpRequest) -> HttpResponse:
    """Shows the form on GET; on POST previews the change, and makes it once the preview was confirmed."""
    try:
        place = PolicyTarget.of(request.GET)
    except InvalidRequest as wrong:
        fault = ErrorPage(400, "This cannot be done", str(wrong), link=reverse("scanners"), link_text="Scanners")
        return render_error(request, fault)
    policy_edits.preview(
        actors.actor_from_request(request), place.deployment, place.base, {}
    )  # raises where there is nothing to edit
    seen = written_at(place.deployment, place.base)
    if request.method != "POST":
        return _ask(request, place, _Draft(seen))
    step = request.POST.get("step", "")
    written = {} if step == "empty" else policy_form.read(request.POST)
    draft = _draft(request, place, written, twice=step != "empty")
    if step != "confirm":
        return _ask(request, place, draft, seen=seen)
    return _confirmed(request, place, draft, seen)


@dataclass(frozen=True, slots=True)
class _Draft:
    """Values of the form with their preview; `looked` None: not previewed yet."""

    written: Mapping[str, Any]
    looked: PolicyPreview | None = None


def _draft(request: HttpRequest, place: PolicyTarget, written: Mapping[str, Any], *, twice: bool) -> _Draft:
    looked = policy_edits.preview(actors.actor_from_request(request), place.deployment, place.base, written)
    again = policy_form.duplicate_names(request.POST) if twice else ()
    return _Draft(written, PolicyPreview(looked.changes, (*looked.problems, *again), looked.notes))


def _confirmed(request: HttpRequest, place: PolicyTarget, draft: _Draft, seen: Mapping[str, Any]) -> HttpResponse:
    if draft.looked is None or draft.looked.problems:
        return _ask(request, place, draft, seen=seen)
    if (shown := _shown(request)) is None or shown[0] != _digest(draft):
        return _ask(request, place, draft, notice=_CHANGED, seen=seen)
    if wrong := dialogs.lacks_reason(request):
        return _ask(request, place, draft, wrong=wrong, seen=seen)
    actor, reason = actors.actor_from_request(request), dialogs.reason(request)
    try:
        policy_edits.edit(actor, place.deployment, place.base, draft.written, reason, seen=shown[1])
    except BadOrder as refused:
        return _ask(request, place, draft, notice=str(refused), seen=seen)
    return dialogs.done(request, f"The policy of {place.words} was changed.", _back(request))


def _ask(
    request: HttpRequest,
    place: PolicyTarget,
    draft: _Draft,
    *,
    notice: str = "",
    wrong: Mapping[str, str] | None = None,
    seen: Mapping[str, Any] | None = None,
) -> HttpResponse:
    seen = draft.written if seen is None else seen
    looked = draft.looked or PolicyPreview()
    form = policy_form.form(draft.written, _below(place), looked.problems, _scanners(place))
    told = {
        "place": place,
        "form": form,
        "was_looked": draft.looked is not None,
        "changes": () if looked.problems else looked.changes,
        "has_problems": bool(looked.problems),
        "notes": looked.notes,
        "is_written": bool(seen),
        "token": signing.dumps([request.user.pk, _digest(draft), dict(seen)], salt=_SALT, compress=True),
        "here": dialogs.post_url(request, place.address),
        "back": _back(request),
        "notice": notice,
        "wrong": wrong or {},
    }
    return dialogs.ask(request, "scanners/policies/_form.html", "The policy of", told, about=place.words)


def _below(place: PolicyTarget) -> ResolvedPolicy:
    """Returns the policy that applies without the layer that is edited here."""
    book = PolicySnapshot.open(config.current())
    mine = (PolicySource.PAGE, place.deployment, place.base)
    layers = (one for one in book.layers if (one.origin.source, one.origin.deployment, one.origin.base) != mine)
    return PolicySnapshot(tuple(layers)).of(place.ref)


def _scanners(place: PolicyTarget) -> tuple[PolicyScanner, ...]:
    """Returns the scanners that apply: all, or for a single known queue those of its library."""
    flavour = policy_table.flavours(state_cache.newest_snapshot()).get(place.ref)
    return scanners_of(flavour) if flavour else tuple(PolicyScanner)


def _shown(request: HttpRequest) -> tuple[str, dict[str, Any]] | None:
    """Returns what this user was shown, from the signed token; None if it is invalid or expired."""
    try:
        pk, digest, seen = signing.loads(request.POST.get("token", ""), salt=_SALT, max_age=LIFE_SECONDS)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    return (digest, seen) if pk == request.user.pk else None


def _digest(draft: _Draft) -> str:
    """Returns a hash of the preview; "" without one, as nothing was shown that could be confirmed."""
    if draft.looked is None:
        return ""
    told = json.dumps([draft.written, draft.looked.changes], sort_keys=True)
    return sha256(told.encode()).hexdigest()


def _back(request: HttpRequest) -> str:
    return dialogs.return_url(request, f"{reverse('scanners')}#policies")


def _link(term: str, start: int) -> str:
    told = {"q": term, "from": str(start) if start else ""}
    said = urlencode({name: value for name, value in told.items() if value})
    return f"?{said}" if said else ""


def _now() -> int:
    return shared_clock.now()
