"""/audit: shows who did what to which job, when, from where and why, with the result, and offers restore."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from asgiref.sync import sync_to_async
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from dashboard.accounts import failed_logins
from dashboard.accounts.roles import UserRole, allows, needs
from dashboard.actions import buttons
from dashboard.audit import presenters as audit_presenters
from dashboard.base.job_rows import Cells
from dashboard.live import state_cache
from dashboard.server.page_concurrency import heavy
from recovery import shared_clock
from recovery.actions import undo_store
from recovery.domain.actions.types import Action, Outcome
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.errors import StoreError, UnstallError
from recovery.reads.audit import export, verification
from recovery.reads.audit import queries as book
from recovery.reads.audit.queries import AuditActionDetail, AuditFilter, AuditRow
from recovery.reads.queues import job_lists

TERM_LIMIT = 1000  # characters of a name in the filter
LOOKED_AT = 20  # jobs of an unknown outcome that one page view reads
_NAMES = ("actor", "act", "queue", "job", "outcome", "since", "until")


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return _page(request)


def _page(
    request: HttpRequest, report: verification.AuditVerification | None = None, status: int = 200
) -> HttpResponse:
    told, now = _told(request), _now()
    listing = book.entries(_filter(told), cursor=request.GET.get("cursor", ""))
    kept = undo_store.counts(line.number for line in listing.lines) if listing.lines else {}
    head = verification.head()
    context = {
        "lines": [_cells(request, line, now, kept) for line in listing.lines],
        "told": told,
        "is_filtered": bool(told),
        "acts": [act.value for act in Action],
        "actors": book.actors(),
        "outcomes": [outcome.value for outcome in Outcome],
        "older": f"?{urlencode({**told, 'cursor': listing.next})}" if listing.next else "",
        "newest": f"?{urlencode(told)}" if request.GET.get("cursor") else "",
        "head": head,
        "report": report,
        "may_verify": allows(request.user, UserRole.ADMIN),
    }
    return render(request, "audit/page.html", context, status=status)


@require_safe
def entry(request: HttpRequest, number: int) -> HttpResponse:
    """Shows one entry in full: each job before and after."""
    detail = book.entry(number)
    now = _now()
    kept = undo_store.counts([detail.line.number])
    context = {
        "line": _cells(request, detail.line, now, kept),
        "detail": detail,
        "jobs": audit_presenters.job_outcomes(detail, _present(detail)),
        "options": audit_presenters.options(detail.options),
    }
    return render(request, "audit/entry.html", context)


def _cells(request: HttpRequest, line: AuditRow, now: int, kept: Mapping[int, int]) -> Cells:
    """Builds one row. *Restore* needs the right for so many jobs.

    Viewers see no IP addresses, nor the name typed at a failed login: it may be a password.
    """
    may = buttons.action_permissions(request.user, line.queue.deployment if line.queue else "")
    count = kept.get(line.number, 0)
    cells = audit_presenters.cells(line, now, {line.number: count} if may.do(Action.RESTORE, many=count > 1) else {})
    if allows(request.user, UserRole.OPERATOR):
        return cells
    return {**cells, "address": "", **({"reason": ""} if line.act == failed_logins.ACT else {})}


@heavy()
@require_POST
@needs(UserRole.ADMIN)
def check(request: HttpRequest) -> HttpResponse:
    """Verifies the whole hash chain, entry by entry."""
    return _page(request, verification.verify())


@heavy()
@require_safe
@needs(UserRole.ADMIN)
def download(request: HttpRequest) -> HttpResponseBase:
    """Exports the whole audit log: a part of it could not be verified elsewhere."""
    form = request.GET.get("format", "")
    form = form if form in export.FORMATS else export.FORMATS[0]
    pieces = export.export(form)
    # Each handler takes one kind of iterator without holding all of it in memory.
    content: Any = _awaited(pieces) if isinstance(request, ASGIRequest) else pieces
    response = StreamingHttpResponse(content, content_type=export.CONTENT_TYPES[form])
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    # Pieces that were compressed one by one end, for a browser, with the first.
    response["Content-Encoding"] = "identity"
    response["Content-Disposition"] = f'attachment; filename="unstall-audit-{day}.{form}"'
    return response


async def _awaited(pieces: Iterator[str]) -> AsyncIterator[str]:
    following = sync_to_async(lambda: next(pieces, None))
    while (piece := await following()) is not None:
        yield piece


def _told(request: HttpRequest) -> dict[str, str]:
    told = {name: request.GET.get(name, "").strip()[:TERM_LIMIT] for name in _NAMES}
    return {name: value for name, value in told.items() if value}


def _filter(told: dict[str, str]) -> AuditFilter:
    return AuditFilter(
        actor=told.get("actor", ""),
        act=told.get("act", ""),
        queue=_queue(told.get("queue", "")),
        job=told.get("job", ""),
        outcome=told.get("outcome", ""),
        since=_day(told.get("since", "")),
        until=_day(told.get("until", ""), days=1),
    )


def _queue(written: str) -> QueueRef | None:
    """Parses a queue as users write it: the base, with the deployment in front if there are several."""
    if not written:
        return None
    snapshot = state_cache.newest_snapshot()
    known = [sample.ref for sample in snapshot.queues] if snapshot else []
    named = next((ref for ref in known if written in (ref.label, f"{ref.deployment}/{ref.label}")), None)
    return named or QueueRef.parse(written)


def _day(written: str, days: int = 0) -> int | None:
    """Returns the start of a day in UTC in ms, plus `days`; None if it is no date."""
    try:
        at = datetime.strptime(written, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(at.timestamp() * 1000) + days * 86_400_000


def _present(detail: AuditActionDetail) -> dict[str, JobRow | None]:
    """Returns the current rows of jobs with an unknown outcome; {} if the store does not answer."""
    ids = list(audit_presenters.unknown_ids(detail))[:LOOKED_AT]
    if not ids or detail.entry.queue is None:
        return {}
    try:
        queue = job_lists.locate(detail.entry.queue, state_cache.newest_snapshot())
        rows = queue.rows([(id, JobState.ACTIVE) for id in ids])
    except (StoreError, UnstallError):
        return {}
    return dict(zip(ids, rows, strict=True))


def _now() -> int:
    return shared_clock.now()
