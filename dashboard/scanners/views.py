"""/scanners: shows the scanners, their runs and findings, and the active safety limits."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.accounts.roles import UserRole, allows
from dashboard.base.redaction import MASKED
from dashboard.live import state_cache
from dashboard.scanners import presenters as scanners_presenters
from dashboard.scanners.policies import policy_table
from dashboard.scanners.policies import views as policies_views
from dashboard.scanners.presenters import Acting
from dashboard.scanners.safety_limits import presenters as safety_limits_presenters
from recovery import config, shared_clock
from recovery.domain.scanners.types import ScannerKind
from recovery.reads.policies.queries import PolicySnapshot
from recovery.reads.safety_limits import queries as safety_limits_queries
from recovery.reads.scanners import queries as scanners_queries
from recovery.stores.state.shared_read import SharedReads

_shown = SharedReads(kept=16)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "scanners/page.html", _context(request) | policies_views.context(request))


@require_safe
def now(request: HttpRequest) -> HttpResponse:
    return render(request, "scanners/_now.html", _context(request))


@require_safe
def scanner(request: HttpRequest, scanner: str) -> HttpResponse:
    return render(request, "scanners/scanner.html", _of_one(request, parse_scanner(scanner)))


@require_safe
def runs(request: HttpRequest, scanner: str) -> HttpResponse:
    return render(request, "scanners/_scanner.html", _of_one(request, parse_scanner(scanner)))


@require_safe
def run(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "scanners/run.html", _of_run(request, pk))


@require_safe
def finds(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "scanners/_run.html", _of_run(request, pk))


def parse_scanner(written: str) -> ScannerKind:
    """Returns the scanner of this name. Raises Http404."""
    found = next((scan for scan in ScannerKind if scan.value == written), None)
    if found is None:
        raise Http404("Unknown scanner.")
    return found


def forget() -> None:
    """Clears the cached cards, so that a change is visible at once."""
    _shown.forget()


def enabled_queues() -> Acting:
    """Returns in how many queues each scanner may act."""
    current = config.current()
    return policy_table.count_enabled_queues(
        PolicySnapshot.open(current), policy_table.flavours(state_cache.newest_snapshot()), current
    )


def _context(request: HttpRequest) -> dict[str, Any]:
    now, see = _now(), MASKED
    found = _shown.get("cards", lambda: scanners_queries.cards(now))
    held = _shown.get("limits", lambda: safety_limits_queries.all_limits(now))
    armed = _shown.get("acting", enabled_queues)
    return {
        "cards": [scanners_presenters.card(card, armed, see) for card in found],
        "limits": safety_limits_presenters.board(held, now),
        "leader": state_cache.leader(),
        **_rights(request),
    }


def _of_one(request: HttpRequest, scan: ScannerKind) -> dict[str, Any]:
    cursor, see = request.GET.get("cursor", ""), MASKED
    found = scanners_queries.runs(scan, cursor=cursor)
    card = _shown.get(("card", scan), lambda: scanners_queries.card(scan, _now()))
    armed = _shown.get("acting", enabled_queues)
    return {
        "scan": scan,
        "cell": scanners_presenters.card(card, armed, see),
        "runs": [scanners_presenters.run(one) for one in found.rows],
        "first": reverse("scanner", args=[scan.value]) if cursor else "",
        "next": _next(found.next),
        "link": _next(cursor),
        "back": reverse("scanner", args=[scan.value]),
        **_rights(request),
    }


def _of_run(request: HttpRequest, pk: int) -> dict[str, Any]:
    one, see, cursor = scanners_queries.run(pk), MASKED, request.GET.get("cursor", "")
    found = scanners_queries.finds(pk, cursor=cursor)
    return {
        "cell": scanners_presenters.run(one),
        "run": one,
        "trouble": see.text(one.trouble),
        "finds": [scanners_presenters.find(row, see) for row in found.rows],
        "first": reverse("scan-run", args=[pk]) if cursor else "",
        "next": _next(found.next),
        "link": _next(cursor),
    }


def _rights(request: HttpRequest) -> dict[str, bool]:
    return {"may_look": allows(request.user, UserRole.OPERATOR), "may_run": allows(request.user, UserRole.ADMIN)}


def _next(cursor: str) -> str:
    return f"?{urlencode({'cursor': cursor})}" if cursor else ""


def _now() -> int:
    return shared_clock.now()
