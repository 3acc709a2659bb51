"""/scanners/<name>/order and /pause: run a scanner now, pause it, resume it; each with a reason, in a dialog."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.decorators.http import require_http_methods

from dashboard import actors, dialogs, scanner_cells
from dashboard.access import Role, allows, needs
from dashboard.addresses import written
from dashboard.live import mirror
from dashboard.policy_table import Place
from dashboard.views import scanners
from dashboard.wishes import NotUnderstood
from recovery import config
from recovery.actions import scans
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Scan
from recovery.errors import BadOrder, DeploymentMissing
from recovery.reads import scans as seen

QUEUES_LISTED = 200  # names that the field suggests; others can be typed
_NO_QUEUE = "No snapshot contains this queue. Write it as DEPLOYMENT/BASE."
_AS_IT_IS = {True: "It is already paused.", False: "It is no longer paused."}


@require_http_methods(["GET", "HEAD", "POST"])
@needs(Role.OPERATOR)
def order(request: HttpRequest, scanner: str) -> HttpResponse:
    """Requests a run of a scanner: a dry run for operators; applying changes needs the role that may act in bulk."""
    scan = scanners.named(scanner)
    observes = scan.may_act and request.POST.get("how", "observe") != "act"
    told = _order_context(request, scan)
    if request.method != "POST":
        return _ask_order(request, scan, told)
    wrong = dialogs.lacks_reason(request)
    queue = None
    try:
        queue = _queue(told["queue"]) if scan.may_act else None
    except NotUnderstood as no:
        wrong["queue"] = str(no)
    if wrong:
        return _ask_order(request, scan, told, wrong)
    try:
        run = scans.order(actors.person(request), scan, observes, queue, dialogs.reason(request))
    except (BadOrder, DeploymentMissing) as refused:
        return _ask_order(request, scan, told, {"order": str(refused)})
    scanners.forget()
    return dialogs.go(request, reverse("scan-run", args=[run.pk]))


@require_http_methods(["GET", "HEAD", "POST"])
@needs(Role.ADMIN)
def pause(request: HttpRequest, scanner: str) -> HttpResponse:
    """Pauses or resumes a scanner, whichever the dialog showed."""
    scan = scanners.named(scanner)
    if request.method != "POST":
        return _ask_pause(request, scan)
    if wrong := dialogs.lacks_reason(request):
        return _ask_pause(request, scan, wrong=wrong)
    goes_on, actor, reason = request.POST.get("do") == "go-on", actors.person(request), dialogs.reason(request)
    try:
        changed = (scans.go_on if goes_on else scans.pause)(actor, scan, reason)
    except BadOrder as refused:
        return _ask_pause(request, scan, notice=str(refused))
    scanners.forget()
    if not changed:
        return _ask_pause(request, scan, notice=_AS_IT_IS[not goes_on])
    words = f"{scan.value} is resumed." if goes_on else f"{scan.value} is paused."
    return dialogs.done(request, words.capitalize(), _back(request, scan))


def _order_context(request: HttpRequest, scan: Scan) -> dict[str, Any]:
    snapshot = mirror.newest()
    known = sorted(written(sample.ref) for sample in snapshot.queues) if snapshot else []
    how = request.POST.get("how", request.GET.get("how", "observe"))
    return scanner_cells.told(scan) | {
        "how": how if allows(request.user, Role.ADMIN) else "observe",
        "queue": request.POST.get("queue", request.GET.get("queue", "")).strip(),
        "queues": known[:QUEUES_LISTED],
        "may_act": allows(request.user, Role.ADMIN),
    }


def _ask_order(
    request: HttpRequest, scan: Scan, told: dict[str, Any], wrong: dict[str, str] | None = None
) -> HttpResponse:
    more = {
        "here": dialogs.here(request, reverse("scan-order", args=[scan.value])),
        "back": _back(request, scan),
        "may_change": scanner_cells.order_words(scan, scanners.acting()) if scan.may_act else "",
        "wrong": wrong or {},
    }
    return dialogs.ask(request, "scanners/_order.html", "Run", told | more, about=scan.value)


def _ask_pause(
    request: HttpRequest, scan: Scan, *, wrong: dict[str, str] | None = None, notice: str = ""
) -> HttpResponse:
    stands = seen.pauses().get(scan)
    told = scanner_cells.told(scan) | {
        "pause": stands,
        "here": dialogs.here(request, reverse("scanner-pause", args=[scan.value])),
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
    snapshot = mirror.newest()
    known = {sample.ref for sample in snapshot.queues} if snapshot else set()
    default = next((deployment.name for deployment in config.current().places), "")
    try:
        place = Place.of({"queue": said})
    except NotUnderstood:
        place = Place()
    for ref in (place.ref, QueueRef.parse(said, default=default)):
        if ref in known:
            return ref
    raise NotUnderstood(_NO_QUEUE)


def _back(request: HttpRequest, scan: Scan) -> str:
    return dialogs.back(request, reverse("scanner", args=[scan.value]))
