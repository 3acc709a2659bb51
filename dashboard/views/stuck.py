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

from dashboard import buttons, inbox, n8n_buttons, server_known, verdicts
from dashboard.addresses import written
from dashboard.buttons import Acts, Button, May
from dashboard.inbox import Filter, StuckCount
from dashboard.live import mirror
from dashboard.rows import Cells
from dashboard.views import n8n
from recovery import shared_clock
from recovery.domain.acting import Act
from recovery.domain.counts import Flavour
from recovery.domain.inbox import Inbox, Tally
from recovery.domain.refs import JobRef, QueueRef
from recovery.domain.verdicts import Kind, Stuck
from recovery.reads import audit, incidents, stuck
from recovery.reads.audit import CompletedAction
from recovery.reads.incidents import Recovery
from recovery.reads.shared import Shared

SIZE = 100  # lines on a page: more than a person looks through at once
OLD_MS = 20_000  # the watch runs every 5 s: an older result is shown as old
TIMES_LIFE = 5.0  # seconds; recovery times of 24 h do not change faster than a person reads
BULK_QUEUES = 6  # queues whose orphans can be acted on together from here
_PICKS = (Act.REQUEUE, Act.FAIL, Act.RELEASE)
_times = Shared(life=TIMES_LIFE, kept=1)


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "stuck/page.html", _context(request) | {"has_n8n": n8n.is_here()})


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    return render(request, "stuck/_rows.html", _context(request))


@require_safe
def count(request: HttpRequest) -> HttpResponse:
    """Returns the number of stuck jobs, for the navigation."""
    return render(request, "stuck/_count.html", {"stuck": StuckCount.of(stuck.newest())})


def _context(request: HttpRequest) -> dict[str, Any]:
    looked, chosen, now = stuck.looked(), Filter.of(request.GET), shared_clock.now()
    found = looked if isinstance(looked, Inbox) else None
    lines = [line for line in found.rows if chosen.holds(line)] if found else []
    start = _start(request, len(lines))
    link = chosen.address + (f"&from={start}" if start else "")
    back = f"{reverse('stuck')}{link}"
    may = buttons.may(request.user)
    return {
        "inbox": found,
        "absence": None if found else looked,
        "active": found.stuck - found.counts.get(Kind.N8N, 0) if found else 0,
        "is_old": found is not None and now - found.checked_at > OLD_MS,
        "lines": _cells(lines[start : start + SIZE], found.checked_at if found else 0, may, back),
        "matching": len(lines),
        "is_filtered": bool(chosen),
        "filters": inbox.fields(chosen, found.rows if found else ()),
        "unread": _unread(found),
        "left_out": sum(tally.left_out for tally in found.queues) if found else 0,
        "unlisted": max(0, found.stuck - len(found.rows)) if found else 0,
        "tallies": _tallies(found),
        "recovery": _recovery(),
        "predicted": _predicted(found),
        "link": link,
        "server": chosen.server,
        "server_url": server_known.url(chosen.server),
        "back": back,
        "may": may,
        "picks": buttons.on_selection(_PICKS, may),
        "all_acts": _all_acts(found, chosen, may, back) if found else [],
        "matching_acts": _matching_acts(_jobs(lines), chosen, may, back),
        "before": _at(chosen, max(0, start - SIZE)) if start else "",
        "after": _at(chosen, start + SIZE) if start + SIZE < len(lines) else "",
    }


def _cells(lines: Sequence[Stuck], looked_at: int, may: May, back: str) -> list[Cells]:
    """Builds the rows. A job changed since the last pass shows that change and no buttons until the next one."""
    flavours, done = _flavours(), _done(lines, looked_at)
    return [
        verdicts.line(line)
        | {"server_url": server_known.url(line.server)}
        | n8n_buttons.links(line)
        | (verdicts.done(done[line.job]) if line.job in done else {"acts": _acts(line, flavours, may, back)})
        for line in lines
    ]


def _done(lines: Sequence[Stuck], looked_at: int) -> dict[JobRef, CompletedAction]:
    """Returns what was done to these jobs since the last pass; {} if the database does not answer."""
    try:
        return audit.done_since(looked_at, [line.job for line in lines if line.has_job])
    except Error:
        return {}


def _flavours() -> dict[QueueRef, Flavour]:
    snapshot = mirror.newest()
    return {sample.ref: sample.flavour for sample in snapshot.queues} if snapshot else {}


def _matching_acts(lines: Sequence[Stuck], chosen: Filter, may: May, back: str) -> tuple[Button, ...]:
    """Returns the actions on all matching rows, if they do not fit on one page or a filter is set."""
    if len(lines) < 2 or (len(lines) <= SIZE and not chosen):
        return ()
    return buttons.on_matching(lines, _flavours(), chosen, may, back=back)


def _jobs(lines: Sequence[Stuck]) -> list[Stuck]:
    """Returns the rows that are jobs; mismatches of n8n are repaired one by one."""
    return [line for line in lines if line.verdict.kind is not Kind.N8N]


def _acts(line: Stuck, flavours: dict[QueueRef, Flavour], may: May, back: str) -> Acts | None:
    """Returns the buttons of a row; None too for a queue in no snapshot, because its library is not known."""
    if line.verdict.kind is Kind.N8N:
        return n8n_buttons.of_line(line, may, back=back)
    flavour = flavours.get(line.job.queue)
    if not may.act or flavour is None or line.row is None or buttons.is_read_only(line.job.queue):
        return None
    return buttons.of_row(line.row, line.verdict, flavour, may, back=back)


def _unread(found: Inbox | None) -> list[Tally]:
    return [tally for tally in found.queues if tally.error] if found else []


def _tallies(found: Inbox | None) -> list[dict[str, Any]]:
    """Returns the counts by verdict, most urgent first; before them how many listed jobs are quarantined."""
    if found is None:
        return []
    told = [
        {"state": kind.value, "count": count, "words": kind.value}
        for kind, count in sorted(found.counts.items(), key=lambda pair: -pair[0].urgency)
        if kind.urgency and count
    ]
    if quarantined := sum(line.verdict.is_quarantined for line in found.rows):
        told.insert(0, {"state": inbox.QUARANTINED, "count": quarantined, "words": "of them quarantined"})
    return told


def _recovery() -> Recovery:
    return _times.get("24 h", lambda: incidents.recovery_times(24))


def _predicted(found: Inbox | None) -> dict[str, Any]:
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


def _all_acts(found: Inbox, chosen: Filter, may: May, back: str) -> list[dict[str, Any]]:
    """Returns bulk actions for queues with several orphans: on all that the scheduler finds, listed here or not."""
    if chosen.cause or chosen.server or chosen.verdict not in ("", Kind.ORPHAN.value, Kind.ABANDONED.value):
        return []
    snapshot, told = mirror.newest(), []
    for tally in sorted(found.queues, key=lambda tally: -tally.orphans):
        sample = snapshot.queue(tally.queue) if snapshot else None
        is_meant = chosen.queue in ("", written(tally.queue)) and not buttons.is_read_only(tally.queue)
        if sample and is_meant and tally.orphans > 1:
            acts = buttons.on_orphans(tally.queue, sample.flavour, tally.orphans, may, back=back)
            if acts:
                told.append({"queue": tally.queue.label, "acts": acts})
    return told[:BULK_QUEUES]


def _start(request: HttpRequest, total: int) -> int:
    written = request.GET.get("from", "")
    start = int(written) if written.isascii() and written.isdigit() and len(written) < 7 else 0
    return min(start, max(0, total - 1)) // SIZE * SIZE


def _at(chosen: Filter, start: int) -> str:
    return f"?{urlencode(chosen.told | {'from': str(start)})}"
