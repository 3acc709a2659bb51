"""/idempotency: lists idempotency keys and who claimed them; operators release claims, admins forget keys."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from dashboard.accounts import actors
from dashboard.accounts.reauthentication import needs_recent_password
from dashboard.accounts.roles import UserRole, allows, may_see_payloads, needs
from dashboard.base import dialogs
from dashboard.base.job_rows import brief
from dashboard.base.json_tree import tree
from dashboard.base.redaction import MASKED, PayloadPart, PayloadRedactor
from dashboard.idempotency import presenters as idempotency_presenters
from recovery import config
from recovery.actions.audit import payload_reveals
from recovery.domain.idempotency import ClaimReply, IdempotencyState, KeyClaim
from recovery.domain.identifiers import printable
from recovery.errors import BadOrder, ConfigError, Missing, NotApart, StoreError
from recovery.idempotency import durability
from recovery.idempotency import ledger_commands as acts
from recovery.idempotency import queries as idempotency_queries
from recovery.idempotency.durability import DurabilityRisk
from recovery.idempotency.queries import (
    IdempotencyCounts,
    IdempotencyCursor,
    IdempotencyFilter,
    IdempotencyListing,
    IdempotencyRow,
)
from recovery.stores.registry import registry
from recovery.stores.state.shared_read import SharedReads

MATCH_LIMIT = 512  # characters of a search: no key is longer
_GONE = "This claim no longer exists: it was completed, released or claimed again."
_SHOWN_FOR = 64  # different filters of the last second
_shown = SharedReads(kept=_SHOWN_FOR)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "idempotency/page.html", _context(request))


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    return render(request, "idempotency/_rows.html", _context(request))


@require_safe
def key(request: HttpRequest, key: str) -> HttpResponse:
    """Shows one key with its whole result, masked. Raises Missing, NotApart, StoreError."""
    answer = acts.show(key)
    if answer.claim is None:
        raise Missing("This key is not claimed, or it was deleted after its retention period.")
    return _key(request, answer.claim, answer)


@require_POST
@needs(UserRole.OPERATOR)
def reveal(request: HttpRequest, key: str) -> HttpResponse:
    """Shows the unmasked result, after an audit entry about it. Raises Missing, NotApart, StoreError, NotRecorded."""
    answer = acts.show(key)
    if answer.claim is None or not answer.result:
        raise Missing(_GONE)
    number = payload_reveals.record_of_key(actors.actor_from_request(request), key)
    return _key(request, answer.claim, answer, revealed=number)


def _key(request: HttpRequest, claim: KeyClaim, answer: ClaimReply, revealed: int | None = None) -> HttpResponse:
    see = MASKED if revealed is None else PayloadRedactor(frozenset({PayloadPart.RESULT}))
    result = see.payload(None, PayloadPart.RESULT, answer.result.decode("utf-8", "replace")) if answer.result else ""
    row = IdempotencyRow(claim, len(answer.result or b""), None)
    told = {
        "line": idempotency_presenters.line(row, answer.now, MASKED, **_may(request)),
        "whole": printable(claim.key),
        "payload": {"size": row.size, "tree": tree(result, is_shape=revealed is None), "is_cut": False},
        "here": reverse("idempotency-key", args=[claim.key]),
        "may_reveal": bool(answer.result) and may_see_payloads(request.user),
        "revealed": revealed,
    }
    return render(request, "idempotency/key.html", told)


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.OPERATOR)
def release(request: HttpRequest, key: str) -> HttpResponse:
    claim = _meant(request, key)
    if claim.is_completed:
        raise Missing(_GONE)
    return _change(request, claim, "Release the claim of")


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.ADMIN)
@needs_recent_password()
def forget(request: HttpRequest, key: str) -> HttpResponse:
    claim = _meant(request, key)
    if not claim.is_completed:
        raise Missing("The key is not completed, so there is nothing to forget.")
    return _change(request, claim, "Forget the completed key")


def _change(request: HttpRequest, claim: KeyClaim, title: str) -> HttpResponse:
    if request.method != "POST":
        return _ask(request, claim, title)
    if lacks := dialogs.lacks_reason(request):
        return _ask(request, claim, title, lacks)
    act = acts.forget if claim.is_completed else acts.release
    try:
        act(actors.actor_from_request(request), claim, dialogs.reason(request))
    except BadOrder as refused:
        return _ask(request, claim, title, {"reason": str(refused)})
    _shown.forget()
    words = f"{'Forgotten' if claim.is_completed else 'Released'}: {printable(claim.key)}."
    return dialogs.done(request, words, _back(request))


def _meant(request: HttpRequest, key: str) -> KeyClaim:
    """Returns the current claim if it still has the shown token. Raises Missing, NotApart, StoreError."""
    claim = acts.show(key).claim
    if claim is None or str(claim.token) != request.GET.get("token", ""):
        raise Missing(_GONE)
    return claim


def _ask(request: HttpRequest, claim: KeyClaim, title: str, wrong: dict[str, str] | None = None) -> HttpResponse:
    told = {
        "claim": claim,
        "effect": idempotency_presenters.EFFECTS[claim.state],
        "risk": idempotency_presenters.RISKS[claim.state],
        "standing": idempotency_presenters.standing(claim, acts.show(claim.key).now),
        "verb": "Forget" if claim.is_completed else "Release",
        "here": dialogs.post_url(request, f"{request.path}?{urlencode({'token': claim.token})}"),
        "back": _back(request),
        "wrong": wrong or {},
    }
    return dialogs.ask(request, "idempotency/_release.html", title, told, about=brief(printable(claim.key)))


def _context(request: HttpRequest) -> dict[str, Any]:
    """Builds the context of the table; if the store does not answer, a sentence replaces the table."""
    wanted, here = _wanted(request)
    told = {"wanted": wanted, "here": here, "is_filtered": bool(wanted.match)}
    try:
        listing, counts, doubts = _shown.get((wanted, "listing"), lambda: _look(wanted))
    except StoreError as error:
        return told | {"trouble": f"The state store does not answer: {error}. {error.advice}"}
    except (NotApart, ConfigError) as error:
        return told | {"trouble": str(error)}
    see, most = MASKED, config.current().idempotency.keys
    lines = [idempotency_presenters.line(row, listing.now, see, **_may(request)) for row in listing.rows]
    return told | {
        "lines": lines,
        "tabs": idempotency_presenters.tabs(counts, wanted.state),
        "counts": counts,
        "most": most,
        "is_full": counts.keys >= most,
        "doubts": doubts if counts.keys else (),
        "looked": listing.looked,
        "older": _query(wanted, listing.next) if listing.next else "",
        "newest": _query(wanted, None) if wanted.after else "",
    }


def _look(wanted: IdempotencyFilter) -> tuple[IdempotencyListing, IdempotencyCounts, tuple[DurabilityRisk, ...]]:
    acts.guard.check()
    store = registry().state()
    return idempotency_queries.listing(store, wanted), idempotency_queries.counts(store), durability.find_risks(store)


def _wanted(request: HttpRequest) -> tuple[IdempotencyFilter, str]:
    """Parses what the URL selects; the second value is the same as a query string, for refreshes."""
    state = next((one for one in IdempotencyState if one.value == request.GET.get("state")), None)
    state = None if state is IdempotencyState.FREE else state
    after = IdempotencyCursor.parse(request.GET.get("after", ""))
    wanted = IdempotencyFilter(state, request.GET.get("q", "").strip()[:MATCH_LIMIT], after)
    return wanted, _query(wanted, after)


def _query(wanted: IdempotencyFilter, after: IdempotencyCursor | None) -> str:
    told = {"state": wanted.state or "", "q": wanted.match, "after": str(after or "")}
    written = urlencode({name: value for name, value in told.items() if value})
    return f"?{written}"


def _may(request: HttpRequest) -> dict[str, bool]:
    return {"may_act": allows(request.user, UserRole.OPERATOR), "may_forget": allows(request.user, UserRole.ADMIN)}


def _back(request: HttpRequest) -> str:
    return dialogs.return_url(request, reverse("idempotency"))
