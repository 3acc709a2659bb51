"""/servers: shows every server with workers: its load, its gate, its processes and its history."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.base.job_rows import Cells
from dashboard.base.redaction import MASKED, PayloadRedactor
from dashboard.live import state_cache
from dashboard.servers import chart_data, chart_figure, gate_presenters
from dashboard.servers import presenters as servers_presenters
from dashboard.servers import queries as servers_queries
from dashboard.servers.chart_data import RANGES
from recovery import shared_clock
from recovery.domain.servers.node_exporter import NodeProblem
from recovery.domain.servers.samples import Server
from recovery.domain.servers.worker_assignment import WorkersByServer
from recovery.errors import StoreError

GONE_TOLD = 20  # servers that no longer report; their pages show their history


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    """Shows all servers, and the most urgent one in detail. The form without scripts selects another with ?server=."""
    if wanted := request.GET.get("server"):
        return redirect(reverse("server", args=[wanted]) + _query(_range(request)))
    id = _worst() or _last_seen()
    return render(request, "servers/page.html", _context(request, id) if id else _nothing())


@require_safe
def server(request: HttpRequest, server: str) -> HttpResponse:
    return render(request, "servers/page.html", _context(request, server))


@require_safe
def now(request: HttpRequest, server: str) -> HttpResponse:
    """Returns the cards as a fragment, with the part below the chart."""
    return render(request, "servers/_cards.html", _present(request, server) | {"is_swap": True})


@require_safe
def chart(request: HttpRequest, server: str) -> JsonResponse:
    """Returns the chart as a plotly figure, the same for all users."""
    servers_queries.find_server(server)
    return JsonResponse(chart_figure.figure(chart_data.read_chart(server, RANGES[_range(request)], _now())))


def _context(request: HttpRequest, id: str) -> dict[str, Any]:
    return _present(request, id) | _past(id, _range(request))


def _nothing() -> dict[str, Any]:
    return {"trouble": state_cache.health().error, "unread": _unread()}


def _present(request: HttpRequest, id: str) -> dict[str, Any]:
    mine, floor, at = servers_queries.find_server(id), servers_queries.read_workers(), _now()
    return {
        "id": id,
        "name": gate_presenters.label(id),
        "server": mine,
        "is_gone": mine is None,
        "seen_at": servers_queries.last_reports().get(id),
        "cards": [_card(one, floor, at) for one in state_cache.servers()],
        "gone": [_left(*one) for one in servers_queries.gone_servers()[:GONE_TOLD]],
        "trouble": state_cache.health().error,
        "unread": _unread(),
        "range": _range(request),
        "ranges": list(RANGES),
        "link": _query(_range(request)),
        "terms": gate_presenters.terms(id),
        "gate": gate_presenters.history(id, at),
        "stuck": servers_queries.stuck_on(id),
        **_staff(mine, floor, MASKED),
    }


def _card(one: Server, floor: WorkersByServer, at: int) -> Cells:
    staff = floor.staff(one) if floor.is_known else None
    told = servers_presenters.card(one, staff, gate_presenters.seen_at(one), at)
    return told | {"name": gate_presenters.label(one.id), "gate": gate_presenters.badge(one, at)}


def _left(id: str, at: int) -> Cells:
    return {"name": gate_presenters.label(id), "url": reverse("server", args=[id]), "seen_at": at}


def _unread() -> list[Cells]:
    return [_trouble(one) for one in state_cache.unreadable_servers()]


def _trouble(found: NodeProblem) -> Cells:
    """Describes a server whose node_exporter cannot be read; without an id, the Prometheus."""
    who = gate_presenters.label(found.id) if found.id else "Prometheus"
    return {"who": who, "target": found.target, "says": found.says, "advice": found.advice, "since": found.since}


def _staff(mine: Server | None, floor: WorkersByServer, see: PayloadRedactor) -> dict[str, Any]:
    if mine is None:
        return {}
    return {
        "members": servers_presenters.members(floor.staff(mine), see),
        "strays": servers_presenters.strays(mine.strays, see),
        "facts": servers_presenters.facts(mine),
        "workers_known": floor.is_known,
    }


def _past(id: str, chosen: str) -> dict[str, Any]:
    """Returns the context of the chart; if the state store does not answer, a sentence replaces it."""
    try:
        past = chart_data.read_chart(id, RANGES[chosen], _now())
    except StoreError as error:
        return {"no_past": str(error)}
    return {"past": past, "numbers": servers_presenters.numbers(past.series), "has_marks": chart_data.kinds(past)}


def _worst() -> str:
    """Returns a server with a closed gate, else the busiest; "" if there is none."""
    here = sorted(
        state_cache.servers(), key=lambda one: (not gate_presenters.is_closed(one.id), -(one.cpu or 0), one.id)
    )
    return here[0].id if here else ""


def _last_seen() -> str:
    return next(iter(servers_queries.last_reports()), "")


def _range(request: HttpRequest) -> str:
    written = request.GET.get("range", "")
    return written if written in RANGES else next(iter(RANGES))


def _query(chosen: str) -> str:
    return f"?{urlencode({'range': chosen})}"


def _now() -> int:
    return shared_clock.now()
