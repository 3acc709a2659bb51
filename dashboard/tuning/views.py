"""/tuning: analyzes configuration files and running queues for what happens to jobs when a worker stops."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods

from dashboard.live import state_cache
from dashboard.server.page_concurrency import heavy
from dashboard.tuning import presenters as tuning_presenters
from dashboard.tuning.drills import views as drills_views
from dashboard.tuning.forms import LIBRARIES, TIMES, TuningFields, TuningInputTooLarge, files
from recovery import config, shared_clock
from recovery.domain.tuning import observed
from recovery.domain.tuning.findings import sort_findings
from recovery.domain.tuning.observed import ObservedSettings
from recovery.domain.tuning.report import TuningReport, report
from recovery.errors import Illegible
from recovery.stores.state.shared_read import SharedReads
from recovery.tuning import running_queues as queues
from recovery.tuning.parsers.deployment_files import parse_files
from recovery.tuning.parsers.uploads import ALL_LIMIT, FILE_LIMIT

_shown = SharedReads(life=5.0, kept=2)  # settings do not change from one second to the next


@heavy()
@sensitive_post_parameters()  # pasted files may hold passwords: no error report shows them
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest) -> HttpResponse:
    """Shows the form and the analysis. It changes and stores nothing, so every role may use it."""
    asked, running = TuningFields.of(request.POST), _running()
    if request.method != "POST":
        return _page(request, asked, running, 200)
    try:
        found = report(parse_files(files(request)), asked.options(), running)
    except TuningInputTooLarge as error:
        return _page(request, asked, running, 413, error=error)
    except Illegible as error:
        return _page(request, asked, running, 400, error=error)
    return _page(request, asked, running, 200, found=found)


def _page(
    request: HttpRequest,
    asked: TuningFields,
    running: ObservedSettings | None,
    status: int,
    *,
    found: TuningReport | None = None,
    error: Illegible | None = None,
) -> HttpResponse:
    findings = found.findings if found else sort_findings(list(observed.findings(running))) if running else ()
    context: dict[str, Any] = {
        "asked": asked,
        "libraries": LIBRARIES,
        "times": [(name, title, usual, asked.times[name]) for name, title, usual in TIMES],
        "limits": {"file": FILE_LIMIT, "all": ALL_LIMIT},
        "error": error,
        "found": found,
        "findings": findings,
        "cards": tuning_presenters.cards(found.outlooks) if found else (),
        "running": running,
        "lines": tuning_presenters.lines(running) if running else (),
        "measured": tuning_presenters.measured_words(tuning_presenters.measured_recovery()),
        **drills_views.drills_context(request),
    }
    return render(request, "tuning/page.html", context, status=status)


def _running() -> ObservedSettings | None:
    """Returns the settings of the running queues; None without a snapshot."""
    snapshot = state_cache.newest_snapshot()
    if snapshot is None:
        return None
    now = shared_clock.now()
    return _shown.get("running", lambda: queues.running(snapshot, config.current(), now))
