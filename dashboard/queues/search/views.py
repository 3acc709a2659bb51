"""/search: finds a job by its id at once; by name or data in slices, while the page is open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.accounts.roles import UserRole, allows
from dashboard.base import job_rows
from dashboard.base.redaction import MASKED
from dashboard.live import state_cache
from dashboard.server.page_concurrency import heavy
from recovery import shared_clock
from recovery.domain.identifiers import QueueRef, printable, unslug
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import Snapshot
from recovery.errors import StoreError
from recovery.reads.queues import job_lists, search
from recovery.reads.queues.job_lists import Queue

WAYS = (("id", "Id"), ("name", "Name"), ("data", "Data"))
STATES = tuple(state for state in JobState if state is not JobState.UNKNOWN)


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """Search as the URL describes it; invalid parameters are ignored, because a link must always open."""

    term: str
    way: str
    queue: QueueRef | None
    state: JobState | None

    @classmethod
    def of(cls, request: HttpRequest) -> SearchRequest:
        way = request.GET.get("by", "")
        state = request.GET.get("state", "")
        return cls(
            term=(request.GET.get("q") or request.GET.get("id", "")).strip()[: search.TERM_LIMIT],
            way=way if way in dict(WAYS) else "id",
            queue=_ref(request.GET.get("queue", "")),
            state=next((one for one in STATES if one.value == state), None),
        )

    @property
    def address(self) -> str:
        parts = {"q": self.term, "by": self.way, "queue": queue_parameter(self.queue), "state": self.state or ""}
        return "?" + urlencode({key: value for key, value in parts.items() if value})


@require_safe
@heavy("q", "id")
def page(request: HttpRequest) -> HttpResponse:
    asked = SearchRequest.of(request)
    snapshot = state_cache.newest_snapshot()
    context = {
        "asked": asked,
        "ways": [way for way in WAYS if way[0] != "data" or _may_search_data(request)],
        "states": STATES,
        "queue": queue_parameter(asked.queue),
        "queues": _choices(snapshot),
        "term_limit": search.TERM_LIMIT,
        "examined_limit": search.EXAMINED_LIMIT,
        **(_results(request, asked, snapshot) if asked.term else {}),
    }
    return render(request, "queues/search/page.html", context)


@require_safe
@heavy("q", "id")
def part(request: HttpRequest) -> HttpResponse:
    """Returns the next slice of a search by name or data: its rows, and the request for the slice after it."""
    asked = SearchRequest.of(request)
    return render(
        request,
        "queues/search/_slice.html",
        {"asked": asked, **_results(request, asked, state_cache.newest_snapshot()), "is_swap": True},
    )


def queue_parameter(ref: QueueRef | None) -> str:
    """Formats a queue as the form and the URL name it."""
    return f"{ref.deployment}/{ref.slug}" if ref else ""


def _ref(named: str) -> QueueRef | None:
    deployment, slash, base = named.partition("/")
    try:
        return QueueRef(deployment, unslug(base)) if slash else None
    except ValueError:
        return None


def _may_search_data(request: HttpRequest) -> bool:
    return allows(request.user, UserRole.OPERATOR)


def _choices(snapshot: Snapshot | None) -> list[tuple[str, str]]:
    if snapshot is None:
        return []
    refs = sorted(sample.ref for sample in snapshot.queues)
    with_deployment = len(snapshot.deployments) > 1
    return [
        (queue_parameter(ref), f"{printable(ref.deployment)} · {ref.label}" if with_deployment else ref.label)
        for ref in refs
    ]


def _results(request: HttpRequest, asked: SearchRequest, snapshot: Snapshot | None) -> dict[str, Any]:
    if asked.way == "data" and not _may_search_data(request):
        raise PermissionDenied("Searching in payloads requires the role operator.")
    if asked.way == "id":
        return _by_id(request, asked, snapshot)
    if asked.queue is None:
        return {
            "advice": f"A search by {asked.way} reads jobs one by one, so it needs a single queue. Select one above."
        }
    return _slice(request, asked, job_lists.locate(asked.queue, snapshot))


def _by_id(request: HttpRequest, asked: SearchRequest, snapshot: Snapshot | None) -> dict[str, Any]:
    if asked.queue is not None:
        queues = [job_lists.locate(asked.queue, snapshot)]
    else:
        queues = [Queue(sample.ref, sample.flavour, sample) for sample in snapshot.queues] if snapshot else []
    hits = search.by_id(asked.term, queues)
    now = shared_clock.now()
    return {"hits": hits, "rows": job_rows.cells(hits.rows, now, MASKED)}


def _slice(request: HttpRequest, asked: SearchRequest, queue: Queue) -> dict[str, Any]:
    known = queue.capabilities.states
    states = (asked.state,) if asked.state in known else known
    terms = search.JobSearchTerms(states, **{asked.way: asked.term})
    cursor, progress = request.GET.get("cursor", ""), request.GET.get("progress", "")
    try:
        found = search.look(queue, terms, cursor=cursor, progress=progress)
    except StoreError as error:
        return {"trouble": error}
    following = urlencode({"cursor": found.next, "progress": found.progress})
    return {
        "found": found,
        "rows": job_rows.cells(found.rows, shared_clock.now(), MASKED),
        "following": f"{asked.address}&{following}" if found.next else "",
        "limit": min(search.EXAMINED_LIMIT, search.total(queue, terms) or search.EXAMINED_LIMIT),
    }
