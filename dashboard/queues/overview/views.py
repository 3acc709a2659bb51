"""/queues: shows totals, problems and the table of all queues, from the snapshot in memory."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.views.decorators.http import require_safe

from dashboard.live import state_cache
from dashboard.queues.overview.presenters import cells
from recovery.domain.queues.health import queue_problems
from recovery.domain.queues.types import Snapshot
from recovery.reads.queues.overview import CHUNK, GROUP_DELIMITERS, OverviewColumn, OverviewQuery, view
from recovery.reads.stuck import queries as stuck_queries
from recovery.stores.state.shared_read import SharedReads

FRAGMENT_LIFE = 60.0  # seconds; a fragment is named by its snapshot's number, so it can never be too old
FRAGMENTS_KEPT = 64  # different filters and sorts of two snapshots; about 100 KB each
_HEADS = (
    (OverviewColumn.NAME, "Queue", ""),
    (OverviewColumn.STATE, "States", "wide"),
    (OverviewColumn.WAITING, "Waiting", "right"),
    (OverviewColumn.ACTIVE, "Active", "right"),
    (OverviewColumn.DELAYED, "Delayed", "right"),
    (OverviewColumn.FAILED, "Failed", "right"),
    (OverviewColumn.STUCK, "Stuck", "right"),
    (OverviewColumn.OLDEST, "Oldest wait", "right"),
    (OverviewColumn.WORKERS, "Workers", "right"),
    (OverviewColumn.STALLED_CHECK, "Stalled check", "right"),
    (OverviewColumn.RATE, "Per minute", "wide"),
    (OverviewColumn.FAILING, "Failing", "right"),
)

_fragments = SharedReads(life=FRAGMENT_LIFE, kept=FRAGMENTS_KEPT)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    query = OverviewQuery.parse(request.GET)
    snapshot, stale = _newest()
    context = {
        "query": query,
        "heads": [_head(query, *head) for head in _HEADS],
        "groups": GROUP_DELIMITERS,
        "fragment": _fragment(snapshot, query, stale) if snapshot else "",
        "summary": _summary(snapshot, query, stale) if snapshot else "",
        "before": query.at(max(0, query.start - CHUNK)) if query.start else None,
        "snapshot": snapshot,
        "stale": stale,
    }
    return render(request, "queues/overview/page.html", context)


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    """Returns one chunk of the table; with the first one, the summary above the table too."""
    query = OverviewQuery.parse(request.GET)
    snapshot, stale = _newest()
    if snapshot is None:
        return HttpResponse(status=204)  # keeps what the page shows
    summary = _summary(snapshot, query, stale, is_swap=True) if query.start == 0 else ""
    return HttpResponse(_fragment(snapshot, query, stale) + summary)


def _newest() -> tuple[Snapshot | None, str]:
    """Returns the snapshot, and why its numbers are old; "" if they are not."""
    return state_cache.newest_snapshot(), state_cache.health().reason


def _looked() -> int:
    """Returns the time of the last pass of the orphan watch, 0 if there was none."""
    inbox = stuck_queries.newest_inbox()
    return inbox.checked_at if inbox else 0


def _fragment(snapshot: Snapshot, query: OverviewQuery, stale: str) -> SafeString:
    """Renders the rows, once per snapshot and query for all users. Nothing in it depends on a role."""
    key = ("rows", snapshot.number, snapshot.taken_at, _looked(), query, bool(stale))
    return _fragments.get(
        key, lambda: render_to_string("queues/overview/_rows.html", {**_rows(snapshot, query), "stale": stale})
    )


def _summary(snapshot: Snapshot, query: OverviewQuery, stale: str, *, is_swap: bool = False) -> SafeString:
    key = ("summary", snapshot.number, snapshot.taken_at, _looked(), query, stale, is_swap)
    return _fragments.get(
        key,
        lambda: render_to_string(
            "queues/overview/_summary.html",
            {
                "overview": view(snapshot, query, stuck_queries.newest_inbox()),
                "query": query,
                "concerns": ()
                if stale
                else queue_problems(snapshot, deployment=query.deployment, inbox=stuck_queries.newest_inbox()),
                "stale": stale,
                "is_swap": is_swap,
            },
        ),
    )


def _rows(snapshot: Snapshot, query: OverviewQuery) -> dict[str, Any]:
    found = view(snapshot, query, stuck_queries.newest_inbox())
    many = len(snapshot.deployments) > 1 and not query.deployment
    following = found.following(query)
    return {
        "rows": [cells(row, snapshot.taken_at, with_deployment=many) for row in found.rows],
        "overview": found,
        "query": query,
        "grouped": bool(query.group),
        "columns": len(_HEADS),
        "following": None if following is None else query.at(following),
    }


def _head(query: OverviewQuery, column: OverviewColumn, title: str, kind: str) -> dict[str, Any]:
    order = ("descending" if query.falling else "ascending") if column is query.sort else ""
    return {"column": column.value, "title": title, "kind": kind, "order": order, "url": query.by(column).url()}
