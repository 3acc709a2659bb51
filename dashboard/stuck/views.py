"""/stuck: lists all stuck jobs over all queues, as the orphan watch found them at its last pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import Error
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.actions import buttons
from dashboard.actions.buttons import ActionButtons, ActionPermissions, Button
from dashboard.base.job_rows import Cells
from dashboard.base.url_identifiers import queue_url_ref
from dashboard.live import state_cache
from dashboard.n8n import execution_buttons
from dashboard.n8n import views as n8n_views
from dashboard.servers import queries as servers_queries
from dashboard.stuck import filters
from dashboard.stuck import presenters as stuck_presenters
from dashboard.stuck.filters import StuckCount, StuckFilter
from recovery import shared_clock
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.queues.types import LibraryVersion
from recovery.domain.stuck.inbox import StuckInbox, StuckTally
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.reads.audit import queries as audit_queries
from recovery.reads.audit.queries import CompletedAction
from recovery.reads.stuck import incidents
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck.incidents import RecoveryTimes
from recovery.stores.state.shared_read import SharedReads

SIZE = 100  # lines on a page: more than a person looks through at once
OLD_MS = 20_000  # the watch runs every 5 s: an older result is shown as old
TIMES_LIFE = 5.0  # seconds; recovery times of 24 h do not change faster than a person reads
BULK_QUEUES = 6  # queues whose orphans can be acted on together from here
_PICKS = (Action.REQUEUE, Action.FAIL, Action.RELEASE)
_times = SharedReads(life=TIMES_LIFE, kept=1)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "stuck/page.html", _context(request) | {"has_n8n": n8n_views.has_n8n()})


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    return render(request, "stuck/_rows.html", _context(request))


@require_safe
def count(request: HttpRequest) -> HttpResponse:
    """Returns the number of stuck jobs, for the navigation."""
    return render(request, "stuck/_count.html", {"stuck": StuckCount.of(stuck_queries.newest_inbox())})


def _context(request: HttpRequest) -> dict[str, Any]:
    looked, chosen, now = stuck_queries.inbox_or_reason(), StuckFilter.of(request.GET), shared_clock.now()
    found = looked if isinstance(looked, StuckInbox) else None
    lines = [line for line in found.rows if chosen.holds(line)] if found else []
    start = _start(request, len(lines))
    link = chosen.address + (f"&from={start}" if start else "")
    back = f"{reverse('stuck')}{link}"
    may = buttons.action_permissions(request.user)
    return {
        "inbox": found,
        "absence": None if found else looked,
        "active": found.stuck - found.counts.get(VerdictKind.N8N, 0) if found else 0,
        "is_old": found is not None and now - found.checked_at > OLD_MS,
        "lines": _cells(lines[start : start + SIZE], found.checked_at if found else 0, may, back),
        "matching": len(lines),
        "is_filtered": bool(chosen),
        "filters": filters.fields(chosen, found.rows if found else ()),
        "unread": _unread(found),
        "left_out": sum(tally.left_out for tally in found.queues) if found else 0,
        "unlisted": max(0, found.stuck - len(found.rows)) if found else 0,
        "tallies": _tallies(found),
        "recovery": _recovery(),
        "predicted": _predicted(found),
        "link": link,
        "server": chosen.server,
        "server_url": servers_queries.url(chosen.server),
        "back": back,
        "may": may,
        "picks": buttons.selection_choices(_PICKS, may),
        "all_acts": _all_acts(found, chosen, may, back) if found else [],
        "matching_acts": _matching_acts(_jobs(lines), chosen, may, back),
        "before": _at(chosen, max(0, start - SIZE)) if start else "",
        "after": _at(chosen, start + SIZE) if start + SIZE < len(lines) else "",
    }


def _cells(lines: Sequence[StuckJob], looked_at: int, may: ActionPermissions, back: str) -> list[Cells]:
    """Builds the rows. A job changed since the last pass shows that change and no buttons until the next one."""
    flavours, done = _flavours(), _done(lines, looked_at)
    return [
        stuck_presenters.line(line)
        | {"server_url": servers_queries.url(line.server)}
        | execution_buttons.links(line)
        | (
            stuck_presenters.completed_cells(done[line.job])
            if line.job in done
            else {"acts": _acts(line, flavours, may, back)}
        )
        for line in lines
    ]


def _done(lines: Sequence[StuckJob], looked_at: int) -> dict[JobRef, CompletedAction]:
    """Returns what was done to these jobs since the last pass; {} if the database does not answer."""
    try:
        return audit_queries.done_since(looked_at, [line.job for line in lines if line.has_job])
    except Error:
        return {}


def _flavours() -> dict[QueueRef, LibraryVersion]:
    snapshot = state_cache.newest_snapshot()
    return {sample.ref: sample.flavour for sample in snapshot.queues} if snapshot else {}


def _matching_acts(
    lines: Sequence[StuckJob], chosen: StuckFilter, may: ActionPermissions, back: str
) -> tuple[Button, ...]:
    """Returns the actions on all matching rows, if they do not fit on one page or a filter is set."""
    if len(lines) < 2 or (len(lines) <= SIZE and not chosen):
        return ()
    return buttons.buttons_for_matching(lines, _flavours(), chosen, may, back=back)


def _jobs(lines: Sequence[StuckJob]) -> list[StuckJob]:
    """Returns the rows that are jobs; mismatches of n8n are repaired one by one."""
    return [line for line in lines if line.verdict.kind is not VerdictKind.N8N]


def _acts(
    line: StuckJob, flavours: dict[QueueRef, LibraryVersion], may: ActionPermissions, back: str
) -> ActionButtons | None:
    """Returns the buttons of a row; None too for a queue in no snapshot, because its library is not known."""
    if line.verdict.kind is VerdictKind.N8N:
        return execution_buttons.buttons_for_stuck_line(line, may, back=back)
    flavour = flavours.get(line.job.queue)
    if not may.act or flavour is None or line.row is None or buttons.is_read_only(line.job.queue):
        return None
    return buttons.buttons_for_row(line.row, line.verdict, flavour, may, back=back)


def _unread(found: StuckInbox | None) -> list[StuckTally]:
    return [tally for tally in found.queues if tally.error] if found else []


def _tallies(found: StuckInbox | None) -> list[dict[str, Any]]:
    """Returns the counts by verdict, most urgent first; before them how many listed jobs are quarantined."""
    if found is None:
        return []
    told = [
        {"state": kind.value, "count": count, "words": kind.value}
        for kind, count in sorted(found.counts.items(), key=lambda pair: -pair[0].urgency)
        if kind.urgency and count
    ]
    if quarantined := sum(line.verdict.is_quarantined for line in found.rows):
        told.insert(0, {"state": filters.QUARANTINED, "count": quarantined, "words": "of them quarantined"})
    return told


def _recovery() -> RecoveryTimes:
    return _times.get("24 h", lambda: incidents.recovery_times(24))


def _predicted(found: StuckInbox | None) -> dict[str, Any]:
    """Returns the slowest predicted recovery of the queues with active jobs, by stalled check or scanner, and how many
    queues have neither.
    """
    dogs = [tally.watchdog for tally in found.queues if not tally.error] if found else []
    times = [dog.recovers_within for dog in dogs if dog.recovers_within is not None]
    return {
        "worst": max(times, default=None),
        "dead": sum(dog.is_dead and dog.recovers_within is None for dog in dogs),
        "queues": len(dogs),
    }


def _all_acts(found: StuckInbox, chosen: StuckFilter, may: ActionPermissions, back: str) -> list[dict[str, Any]]:
    """Returns bulk actions for queues with several orphans: on all that the scheduler finds, listed here or not."""
    if (
        chosen.cause
        or chosen.server
        or chosen.verdict not in ("", VerdictKind.ORPHAN.value, VerdictKind.ABANDONED.value)
    ):
        return []
    snapshot, told = state_cache.newest_snapshot(), []
    for tally in sorted(found.queues, key=lambda tally: -tally.orphans):
        sample = snapshot.queue(tally.queue) if snapshot else None
        is_meant = chosen.queue in ("", queue_url_ref(tally.queue)) and not buttons.is_read_only(tally.queue)
        if sample and is_meant and tally.orphans > 1:
            acts = buttons.buttons_for_orphans(tally.queue, sample.flavour, tally.orphans, may, back=back)
            if acts:
                told.append({"queue": tally.queue.label, "acts": acts})
    return told[:BULK_QUEUES]


def _start(request: HttpRequest, total: int) -> int:
    written = request.GET.get("from", "")
    start = int(written) if written.isascii() and written.isdigit() and len(written) < 7 else 0
    return min(start, max(0, total - 1)) // SIZE * SIZE


def _at(chosen: StuckFilter, start: int) -> str:
    return f"?{urlencode(chosen.told | {'from': str(start)})}"
