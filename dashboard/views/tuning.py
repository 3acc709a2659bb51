"""/tuning: analyzes configuration files and running queues for what happens to jobs when a worker stops."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from dashboard import tuning_cells
from dashboard.live import mirror
from dashboard.page_concurrency import heavy
from dashboard.tuning_form import LIBRARIES, TIMES, Asked, TooLarge, files
from dashboard.views import drill
from recovery import config, shared_clock
from recovery.domain.tuning import seen
from recovery.domain.tuning.findings import ordered
from recovery.domain.tuning.report import Report, report
from recovery.domain.tuning.seen import Running
from recovery.errors import Illegible
from recovery.reads.shared import Shared
from recovery.reads.tuning import running as queues
from recovery.reads.tuning.scenes import scene
from recovery.reads.tuning.texts import ALL_LIMIT, FILE_LIMIT

_shown = Shared(life=5.0, kept=2)  # settings do not change from one second to the next


@heavy()
@sensitive_post_parameters()  # pasted files may hold passwords: no error report shows them
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Shows the form and the analysis. It changes and stores nothing, so every role may use it."""
    asked, running = Asked.of(request.POST), _running()
    if request.method != "POST":
        return _page(request, asked, running, 200)
    try:
        found = report(scene(files(request)), asked.options(), running)
    except TooLarge as error:
        return _page(request, asked, running, 413, error=error)
    except Illegible as error:
        return _page(request, asked, running, 400, error=error)
    return _page(request, asked, running, 200, found=found)


def _page(
    request: HttpRequest,
    asked: Asked,
    running: Running | None,
    status: int,
    *,
    found: Report | None = None,
    error: Illegible | None = None,
) -> HttpResponse:
    findings = found.findings if found else ordered(list(seen.findings(running))) if running else ()
    context: dict[str, Any] = {
        "asked": asked,
        "libraries": LIBRARIES,
        "times": [(name, title, usual, asked.times[name]) for name, title, usual in TIMES],
        "limits": {"file": FILE_LIMIT, "all": ALL_LIMIT},
        "error": error,
        "found": found,
        "findings": findings,
        "cards": tuning_cells.cards(found.outlooks) if found else (),
        "running": running,
        "lines": tuning_cells.lines(running) if running else (),
        "measured": tuning_cells.measured_words(tuning_cells.measured()),
        **drill.part(request),
    }
    return render(request, "tuning/page.html", context, status=status)


def _running() -> Running | None:
    """Returns the settings of the running queues; None without a snapshot."""
    snapshot = mirror.newest()
    if snapshot is None:
        return None
    now = shared_clock.now()
    return _shown.get("running", lambda: queues.running(snapshot, config.current(), now))
