"""/scanners: shows the scanners, their runs and findings, and the active safety limits."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard import brake_cells, policy_table, scanner_cells
from dashboard.access import Role, allows
from dashboard.discretion import MASKED
from dashboard.live import mirror
from dashboard.scanner_cells import Acting
from dashboard.views import policies
from recovery import config, shared_clock
from recovery.domain.scans import Scan
from recovery.reads import brakes, scans
from recovery.reads.policies import Book
from recovery.reads.shared import Shared

_shown = Shared(kept=16)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "scanners/page.html", _context(request) | policies.context(request))


@require_safe
def now(request: HttpRequest) -> HttpResponse:
    return render(request, "scanners/_now.html", _context(request))


@require_safe
def scanner(request: HttpRequest, scanner: str) -> HttpResponse:
    return render(request, "scanners/scanner.html", _of_one(request, named(scanner)))


@require_safe
def runs(request: HttpRequest, scanner: str) -> HttpResponse:
    return render(request, "scanners/_scanner.html", _of_one(request, named(scanner)))


@require_safe
def run(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "scanners/run.html", _of_run(request, pk))


@require_safe
def finds(request: HttpRequest, pk: int) -> HttpResponse:
    return render(request, "scanners/_run.html", _of_run(request, pk))


def named(written: str) -> Scan:
    """Returns the scanner of this name. Raises Http404."""
    found = next((scan for scan in Scan if scan.value == written), None)
    if found is None:
        raise Http404("Unknown scanner.")
    return found


def forget() -> None:
    """Clears the cached cards, so that a change is visible at once."""
    _shown.forget()


def acting() -> Acting:
    """Returns in how many queues each scanner may act."""
    current = config.current()
    return policy_table.acting(Book.open(current), policy_table.flavours(mirror.newest()), current)


def _context(request: HttpRequest) -> dict[str, Any]:
    now, see = _now(), MASKED
    found = _shown.get("cards", lambda: scans.cards(now))
    held = _shown.get("brakes", lambda: brakes.of_all(now))
    armed = _shown.get("acting", acting)
    return {
        "cards": [scanner_cells.card(card, armed, see) for card in found],
        "brakes": brake_cells.board(held, now),
        "leader": mirror.leader(),
        **_rights(request),
    }


def _of_one(request: HttpRequest, scan: Scan) -> dict[str, Any]:
    cursor, see = request.GET.get("cursor", ""), MASKED
    found = scans.runs(scan, cursor=cursor)
    card = _shown.get(("card", scan), lambda: scans.card(scan, _now()))
    armed = _shown.get("acting", acting)
    return {
        "scan": scan,
        "cell": scanner_cells.card(card, armed, see),
        "runs": [scanner_cells.run(one) for one in found.rows],
        "first": reverse("scanner", args=[scan.value]) if cursor else "",
        "next": _next(found.next),
        "link": _next(cursor),
        "back": reverse("scanner", args=[scan.value]),
        **_rights(request),
    }


def _of_run(request: HttpRequest, pk: int) -> dict[str, Any]:
    one, see, cursor = scans.run(pk), MASKED, request.GET.get("cursor", "")
    found = scans.finds(pk, cursor=cursor)
    return {
        "cell": scanner_cells.run(one),
        "run": one,
        "trouble": see.text(one.trouble),
        "finds": [scanner_cells.find(row, see) for row in found.rows],
        "first": reverse("scan-run", args=[pk]) if cursor else "",
        "next": _next(found.next),
        "link": _next(cursor),
    }


def _rights(request: HttpRequest) -> dict[str, bool]:
    return {"may_look": allows(request.user, Role.OPERATOR), "may_run": allows(request.user, Role.ADMIN)}


def _next(cursor: str) -> str:
    return f"?{urlencode({'cursor': cursor})}" if cursor else ""


def _now() -> int:
    return shared_clock.now()
