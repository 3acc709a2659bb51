"""/logs: shows log lines of the servers from every configured source, live or of a time range."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, may_see_payloads, needs
from dashboard.logs import line_reader
from dashboard.logs.live import download
from dashboard.logs.live import request as live_request
from dashboard.logs.live.json_endpoints import parse_position
from dashboard.logs.live.request import LogRequestRefused, UrlFields
from dashboard.logs.query import RANGES, SOURCES, LogPageQuery
from dashboard.server.page_concurrency import heavy
from recovery import config, shared_clock
from recovery.actions.audit import payload_reveals
from recovery.domain.logs.types import TERM_LIMIT, TERMS_LIMIT, LogLevel, LogQuery
from recovery.logs import shippers

PLAIN = "plain"  # for browsers without scripts: the newest lines are part of the page


@require_safe
@heavy(PLAIN)
def page(request: HttpRequest) -> HttpResponse:
    now, known = shared_clock.now(), config.current()
    asked = LogPageQuery.of(request.GET, known.logs)
    usual = [source.name for source in known.logs][:SOURCES]
    is_plain = PLAIN in request.GET
    found = line_reader.read_newest(known, asked.sources or usual, asked.query(now)) if is_plain else None
    address = reverse("logs")
    return render(
        request,
        "logs/page.html",
        {
            "asked": asked,
            "sources": known.logs,
            "usual": " ".join(usual),
            "ranges": RANGES,
            "levels": list(LogLevel),
            "texts": (("include", "Contains", asked.include or ("",)), ("exclude", "Excludes", asked.exclude or ("",))),
            "limits": {"term": TERM_LIMIT, "terms": TERMS_LIMIT},
            "choices": _choices(asked, found.labels if found else ()),
            "is_filtered": bool(asked.address()),
            "is_live": asked.is_live,
            "is_plain": is_plain,
            "is_shipping": shippers.is_known(),
            "may_reveal": may_see_payloads(request.user),
            "found": found,
            "plain": f"{address}?{urlencode([*_pairs(request), (PLAIN, '1')])}",
            "live": f"{address}?{asked.address(with_line=False)}",
            "download": _download(asked, asked.sources or tuple(usual), now),
        },
    )


@heavy()
@require_POST
@needs(UserRole.OPERATOR)
def reveal(request: HttpRequest) -> JsonResponse:
    """Shows one line unmasked, after an audit entry about it. Raises Missing, StoreError, NotRecorded."""
    try:
        fields = UrlFields(request.META.get("QUERY_STRING", "").encode())
        source, id, query = (
            fields.one("source"),
            parse_position(fields, "id"),
            LogQuery(labels=live_request.labels(fields)),
        )
    except LogRequestRefused as wrong:
        return JsonResponse({"error": str(wrong), "advice": ""}, status=400)
    line = line_reader.reveal_line(config.current(), source, id, query)
    number = payload_reveals.record_of_line(actors.actor_from_request(request), source, id)
    return JsonResponse({"text": line.text, "audit": number})


def _pairs(request: HttpRequest) -> list[tuple[str, str]]:
    return [(name, value) for name, values in request.GET.lists() for value in values]


def _choices(asked: LogPageQuery, known: tuple[str, ...]) -> list[tuple[str, bool]]:
    return [(label, label in asked.labels) for label in dict.fromkeys((*asked.labels, *known))]


def _download(asked: LogPageQuery, sources: tuple[str, ...], now: int) -> str:
    start, end = asked.moments(now)
    pairs = [*(("source", name) for name in sources), *asked.choice(), ("from", str(start)), ("to", str(end))]
    return f"{download.PATH}?{urlencode(pairs)}"


def context(query: str, **more: Any) -> dict[str, Any]:
    """Returns the context for log lines on another page, which fixes the query; users cannot change it there."""
    return {"query": query, "sources": config.current().logs, "is_shipping": shippers.is_known(), **more}
