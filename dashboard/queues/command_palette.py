"""Serves the command palette: one box that finds queues, pages, and a job by its id."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.accounts.roles import allows
from dashboard.base.context_processors import PAGES
from dashboard.live import state_cache
from recovery.domain.queues.types import QueueSample

QUEUES_SHOWN = 12  # more than that, and typing another letter is quicker than reading
QUERY_LIMIT = 200  # characters; a job id is shorter


@dataclass(frozen=True, slots=True)
class PaletteHit:
    """Result: its URL, title and kind."""

    url: str
    title: str
    kind: str
    note: str = ""


@require_safe
def palette(request: HttpRequest) -> HttpResponse:
    """Returns a fragment for the dialog, or a page for browsers without JavaScript."""
    query = request.GET.get("q", "").strip()[:QUERY_LIMIT]
    queues, more = _queues(query)
    context = {"query": query, "hits": (*queues, *_pages(request, query), *_job(query)), "more": more}
    return render(
        request,
        "queues/palette/_hits.html" if "HX-Request" in request.headers else "queues/palette/palette.html",
        context,
    )


def _queues(query: str) -> tuple[list[PaletteHit], int]:
    """Returns queues whose name has every word of the query, best matches first; and how many more there are."""
    snapshot = state_cache.newest_snapshot()
    words = query.lower().split()
    samples = snapshot.queues if snapshot else ()
    found = [sample for sample in samples if all(word in sample.ref.label.lower() for word in words)]
    found.sort(key=lambda sample: (not _name(sample).startswith(query.lower()), _name(sample), sample.ref))
    return [_queue(sample) for sample in found[:QUEUES_SHOWN]], max(0, len(found) - QUEUES_SHOWN)


def _name(sample: QueueSample) -> str:
    """Returns the queue's own name without its prefix: what users type first."""
    return sample.ref.label.lower().rpartition(":")[2]


def _queue(sample: QueueSample) -> PaletteHit:
    ref = sample.ref
    note = f"{ref.deployment} · {sample.flavour.label}"
    return PaletteHit(reverse("queue", args=[ref.deployment, ref.base]), ref.label, "queue", note)


def _pages(request: HttpRequest, query: str) -> list[PaletteHit]:
    return [
        PaletteHit(page.url, page.title, "page", page.keys)
        for page in PAGES
        if allows(request.user, page.role) and query.lower() in page.title.lower()
    ]


def _job(query: str) -> list[PaletteHit]:
    if not query:
        return []
    return [
        PaletteHit(
            f"{reverse('search')}?{urlencode({'id': query})}", query, "job", "search for this job ID in all queues"
        )
    ]
