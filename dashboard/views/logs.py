"""/logs: shows log lines of the servers from every configured source, live or of a time range."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from dashboard import actors, log_lines
from dashboard.access import Role, may_see_payloads, needs
from dashboard.live import asking, download
from dashboard.live.answers import place
from dashboard.live.asking import Fields, Refused
from dashboard.log_query import RANGES, SOURCES, Asked
from dashboard.page_concurrency import heavy
from recovery import config, shared_clock
from recovery.actions import payload_reveals
from recovery.domain.lines import TERM_LIMIT, TERMS_LIMIT, Level, Query
from recovery.reads import shipping

PLAIN = "plain"  # for browsers without scripts: the newest lines are part of the page


@require_safe
@heavy(PLAIN)
def page(request: HttpRequest) -> HttpResponse:
    now, known = shared_clock.now(), config.current()
    asked = Asked.of(request.GET, known.logs)
    usual = [source.name for source in known.logs][:SOURCES]
    is_plain = PLAIN in request.GET
    found = log_lines.newest(known, asked.sources or usual, asked.query(now)) if is_plain else None
    address = reverse("logs")
    return render(
        request,
        "logs/page.html",
        {
            "asked": asked,
            "sources": known.logs,
            "usual": " ".join(usual),
            "ranges": RANGES,
            "levels": list(Level),
            "texts": (("include", "Contains", asked.include or ("",)), ("exclude", "Excludes", asked.exclude or ("",))),
            "limits": {"term": TERM_LIMIT, "terms": TERMS_LIMIT},
            "choices": _choices(asked, found.labels if found else ()),
            "is_filtered": bool(asked.address()),
            "is_live": asked.is_live,
            "is_plain": is_plain,
            "is_shipping": shipping.is_known(),
            "may_reveal": may_see_payloads(request.user),
            "found": found,
            "plain": f"{address}?{urlencode([*_pairs(request), (PLAIN, '1')])}",
            "live": f"{address}?{asked.address(with_line=False)}",
            "download": _download(asked, asked.sources or tuple(usual), now),
        },
    )


@heavy()
@require_POST
@needs(Role.OPERATOR)
def reveal(request: HttpRequest) -> JsonResponse:
    """Shows one line unmasked, after an audit entry about it. Raises Missing, StoreError, NotRecorded."""
    try:
        fields = Fields(request.META.get("QUERY_STRING", "").encode())
        source, id, query = fields.one("source"), place(fields, "id"), Query(labels=asking.labels(fields))
    except Refused as wrong:
        return JsonResponse({"error": str(wrong), "advice": ""}, status=400)
    line = log_lines.revealed(config.current(), source, id, query)
    number = payload_reveals.record_of_line(actors.person(request), source, id)
    return JsonResponse({"text": line.text, "audit": number})


def _pairs(request: HttpRequest) -> list[tuple[str, str]]:
    return [(name, value) for name, values in request.GET.lists() for value in values]


def _choices(asked: Asked, known: tuple[str, ...]) -> list[tuple[str, bool]]:
    return [(label, label in asked.labels) for label in dict.fromkeys((*asked.labels, *known))]


def _download(asked: Asked, sources: tuple[str, ...], now: int) -> str:
    start, end = asked.moments(now)
    pairs = [*(("source", name) for name in sources), *asked.choice(), ("from", str(start)), ("to", str(end))]
    return f"{download.PATH}?{urlencode(pairs)}"


def context(query: str, **more: Any) -> dict[str, Any]:
    """Returns the context for log lines on another page, which fixes the query; users cannot change it there."""
    return {"query": query, "sources": config.current().logs, "is_shipping": shipping.is_known(), **more}
