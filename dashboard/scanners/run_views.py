"""/scanners/<name>/order and /pause: run a scanner now, pause it, resume it; each with a reason, in a dialog."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, allows, needs
from dashboard.actions.action_request import InvalidRequest
from dashboard.base import dialogs
from dashboard.base.url_identifiers import queue_url_ref
from dashboard.live import state_cache
from dashboard.scanners import presenters as scanners_presenters
from dashboard.scanners import views as scanners_views
from dashboard.scanners.policies.policy_table import PolicyTarget
from recovery import config
from recovery.actions import scanner_control
from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerKind
from recovery.errors import BadOrder, DeploymentMissing
from recovery.reads.scanners import queries as seen

QUEUES_LISTED = 200  # names that the field suggests; others can be typed
_NO_QUEUE = "No snapshot contains this queue. Write it as DEPLOYMENT/BASE."
_AS_IT_IS = {True: "It is already paused.", False: "It is no longer paused."}


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.OPERATOR)
def order(request: HttpRequest, scanner: str) -> HttpResponse:
    """Requests a run of a scanner: a dry run for operators; applying changes needs the role that may act in bulk."""
    scan = scanners_views.parse_scanner(scanner)
    dry_run = scan.may_act and request.POST.get("how", "dry-run") != "run"
    told = _order_context(request, scan)
    if request.method != "POST":
        return _ask_order(request, scan, told)
    wrong = dialogs.lacks_reason(request)
    queue = None
    try:
        queue = _queue(told["queue"]) if scan.may_act else None
    except InvalidRequest as no:
        wrong["queue"] = str(no)
    if wrong:
        return _ask_order(request, scan, told, wrong)
    try:
        run = scanner_control.order(actors.actor_from_request(request), scan, dry_run, queue, dialogs.reason(request))
    except (BadOrder, DeploymentMissing) as refused:
        return _ask_order(request, scan, told, {"order": str(refused)})
    scanners_views.forget()
    return dialogs.go(request, reverse("scan-run", args=[run.pk]))


@require_http_methods(["GET", "HEAD", "POST"])
@needs(UserRole.ADMIN)
def pause(request: HttpRequest, scanner: str) -> HttpResponse:
    """Pauses or resumes a scanner, whichever the dialog showed."""
    scan = scanners_views.parse_scanner(scanner)
    if request.method != "POST":
        return _ask_pause(request, scan)
    if wrong := dialogs.lacks_reason(request):
        return _ask_pause(request, scan, wrong=wrong)
    goes_on, actor, reason = (
        request.POST.get("do") == "go-on",
        actors.actor_from_request(request),
        dialogs.reason(request),
    )
    try:
        changed = (scanner_control.resume if goes_on else scanner_control.pause)(actor, scan, reason)
    except BadOrder as refused:
        return _ask_pause(request, scan, notice=str(refused))
    scanners_views.forget()
    if not changed:
        return _ask_pause(request, scan, notice=_AS_IT_IS[not goes_on])
    words = f"{scan.value} is resumed." if goes_on else f"{scan.value} is paused."
    return dialogs.done(request, words.capitalize(), _back(request, scan))


def _order_context(request: HttpRequest, scan: ScannerKind) -> dict[str, Any]:
    snapshot = state_cache.newest_snapshot()
    known = sorted(queue_url_ref(sample.ref) for sample in snapshot.queues) if snapshot else []
    how = request.POST.get("how", request.GET.get("how", "dry-run"))
    return scanners_presenters.scanner_context(scan) | {
        "how": how if allows(request.user, UserRole.ADMIN) else "dry-run",
        "queue": request.POST.get("queue", request.GET.get("queue", "")).strip(),
        "queues": known[:QUEUES_LISTED],
        "may_act": allows(request.user, UserRole.ADMIN),
    }


def _ask_order(
    request: HttpRequest, scan: ScannerKind, told: dict[str, Any], wrong: dict[str, str] | None = None
) -> HttpResponse:
    more = {
        "here": dialogs.post_url(request, reverse("scan-order", args=[scan.value])),
        "back": _back(request, scan),
        "may_change": scanners_presenters.order_words(scan, scanners_views.enabled_queues()) if scan.may_act else "",
        "wrong": wrong or {},
    }
    return dialogs.ask(request, "scanners/_order.html", "Run", told | more, about=scan.value)


def _ask_pause(
    request: HttpRequest, scan: ScannerKind, *, wrong: dict[str, str] | None = None, notice: str = ""
) -> HttpResponse:
    stands = seen.pauses().get(scan)
    told = scanners_presenters.scanner_context(scan) | {
        "pause": stands,
        "here": dialogs.post_url(request, reverse("scanner-pause", args=[scan.value])),
        "back": _back(request, scan),
        "wrong": wrong or {},
        "notice": notice,
    }
    title = "Resume" if stands else "Pause"
    return dialogs.ask(request, "scanners/_pause.html", title, told, about=scan.value)


def _queue(said: str) -> QueueRef | None:
    """Parses a queue as URLs or as shell commands write it. Raises NotUnderstood."""
    if not said:
        return None
    snapshot = state_cache.newest_snapshot()
    known = {sample.ref for sample in snapshot.queues} if snapshot else set()
    default = next((deployment.name for deployment in config.current().places), "")
    try:
        place = PolicyTarget.of({"queue": said})
    except InvalidRequest:
        place = PolicyTarget()
    for ref in (place.ref, QueueRef.parse(said, default=default)):
        if ref in known:
            return ref
    raise InvalidRequest(_NO_QUEUE)


def _back(request: HttpRequest, scan: ScannerKind) -> str:
    return dialogs.return_url(request, reverse("scanner", args=[scan.value]))
