"""/queues/<deployment>/<base>/: shows one queue, its jobs by state in tabs, its workers, policy and history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.accounts.roles import may_see_payloads, role_of
from dashboard.actions import buttons
from dashboard.base import job_rows, url_identifiers
from dashboard.base.redaction import MASKED
from dashboard.live import state_cache
from dashboard.n8n import execution_buttons
from dashboard.queues.queue import throughput_chart
from dashboard.scanners.policies import policy_table, queue_summary
from dashboard.stuck import presenters as stuck_presenters
from recovery import config, shared_clock
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.time_series import HOURS
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.stuck.job_table_rules import JobTableLimits
from recovery.errors import StoreError
from recovery.reads.queues import history, job_lists, run_history
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck import table_verdicts
from recovery.stores.state.shared_read import SharedReads

CHART_LIFE = 15.0  # seconds; a chart's newest bucket is a closed minute
CHARTS_KEPT = 128

_charts = SharedReads(life=CHART_LIFE, kept=CHARTS_KEPT)
_FRAGMENTS = {
    JobState.ACTIVE: "queues/queue/_active.html",
    JobState.COMPLETED: "queues/queue/_completed.html",
    JobState.FAILED: "queues/queue/_failed.html",
    JobState.DELAYED: "queues/queue/_delayed.html",
}


@dataclass(frozen=True, slots=True)
class QueueTab:
    """Tab of the page; `state` if it lists jobs. `count` None: not known; "": has no count."""

    name: str
    title: str
    count: int | str | None = ""
    state: JobState | None = None

    @property
    def fragment(self) -> str:
        if self.state is None:
            return f"queues/queue/_{self.name}.html"
        return _FRAGMENTS.get(self.state, "queues/queue/_waiting.html")


@require_safe
def page(request: HttpRequest, deployment: str, base: str) -> HttpResponse:
    if elsewhere := execution_buttons.execution_url(QueueRef(deployment, base)):
        return redirect(elsewhere)
    return render(request, "queues/queue/page.html", _context(request, deployment, base))


@require_safe
def tab(request: HttpRequest, deployment: str, base: str) -> HttpResponse:
    """Returns the tab as a fragment, with the head of the page."""
    return render(request, "queues/queue/_tab.html", _context(request, deployment, base) | {"is_swap": True})


@require_safe
def chart(request: HttpRequest, deployment: str, base: str) -> JsonResponse:
    """Returns completed and failed jobs as a plotly figure, cached for all users."""
    queue = job_lists.locate(QueueRef(deployment, base), state_cache.newest_snapshot())
    hours = _hours(request)
    series = _charts.get((queue.ref, hours), lambda: history.series(queue.ref, queue.flavour, hours))
    return JsonResponse(throughput_chart.figure(series))


def _context(request: HttpRequest, deployment: str, base: str) -> dict[str, Any]:
    queue = job_lists.locate(QueueRef(deployment, base), state_cache.newest_snapshot())
    tabs = _tabs(queue)
    chosen = _chosen(tabs, request.GET.get("tab", ""))
    now = shared_clock.now()
    may, back = buttons.action_permissions(request.user, queue.ref.deployment), _back(queue, chosen.name)
    return {
        "queue": queue,
        "sample": queue.sample,
        "is_table": queue.flavour.library is QueueLibrary.TABLE,
        "sweep": _sweep(queue, now),
        "old": _old(queue),
        "tabs": tabs,
        "tab": chosen,
        "now": now,
        "link": _link(request, chosen),
        "sees_data": may_see_payloads(request.user),
        "may": may,
        "queue_acts": buttons.buttons_for_queue(queue, may, back=back),
        "why_not_resume": buttons.why_not_resume(queue, request.user),
        "back": back,
        **_contents(request, queue, chosen, now),
    }


def _sweep(queue: Queue, now: int) -> JobTableLimits | None:
    """Returns how lost rows of a job table are requeued; None for a queue in Redis."""
    if queue.flavour.library is not QueueLibrary.TABLE:
        return None
    current = config.current()
    return table_verdicts.terms(
        current, queue.ref, now, stuck_queries.sweep_of(queue.ref, state_cache.newest_snapshot(), now)
    )


def _old(queue: Queue) -> str:
    """Returns why the numbers of this page are old; "" if they are not."""
    if queue.sample is None:
        return ""
    snapshot = state_cache.newest_snapshot()
    deployment = snapshot.deployment(queue.ref.deployment) if snapshot else None
    return queue.sample.error or (deployment.error if deployment else "") or state_cache.health().reason


def _tabs(queue: Queue) -> list[QueueTab]:
    can, sample = queue.capabilities, queue.sample
    tabs = [QueueTab(state.value, _title(state), _count(queue, state), state) for state in can.states]
    if sample and sample.is_paused:  # if its jobs are in `wait`, an empty Paused tab would read as not paused
        tabs = [tab for tab in tabs if tab.state is not JobState.PAUSED or tab.count != 0]
    if can.schedulers:
        tabs.append(QueueTab("schedulers", "Schedulers"))
    hands = ("owners", "Owners") if queue.flavour.library is QueueLibrary.TABLE else ("workers", "Workers")
    tabs.append(QueueTab(*hands, sample.workers if sample else None))
    tabs.append(QueueTab("policy", "Policy"))
    tabs.append(QueueTab("history", "History"))
    return tabs


def _chosen(tabs: list[QueueTab], name: str) -> QueueTab:
    """Returns the tab of this name; for a missing tab Paused, the tab Waiting."""
    named = {tab.name: tab for tab in tabs}
    return named.get(name) or (named[JobState.WAITING.value] if name == JobState.PAUSED else tabs[0])


def _back(queue: Queue, tab: str) -> str:
    """Returns the URL to which an action without scripts leads back."""
    return f"{reverse('queue', args=[queue.ref.deployment, queue.ref.base])}?tab={tab}"


def _title(state: JobState) -> str:
    return "Children" if state is JobState.WAITING_CHILDREN else state.value.capitalize()


def _count(queue: Queue, state: JobState) -> int | None:
    return job_lists.count_of(queue.sample, state) if queue.sample else None


def _contents(request: HttpRequest, queue: Queue, tab: QueueTab, now: int) -> dict[str, Any]:
    """Returns what the tab shows; if the store does not answer, a sentence replaces it and the head stays."""
    try:
        if tab.state is not None:
            return _jobs(request, queue, tab.state, now)
        return _PARTS[tab.name](request, queue, now)
    except StoreError as error:
        return {"trouble": error}


def _jobs(request: HttpRequest, queue: Queue, state: JobState, now: int) -> dict[str, Any]:
    size = _size(request)
    window = job_lists.window(queue, state, cursor=request.GET.get("cursor", ""), size=size)
    may, back = buttons.action_permissions(request.user, queue.ref.deployment), _back(queue, state.value)
    return {
        "window": window,
        "rows": _lines(request, queue, state, window.rows, now),
        "size": size,
        "sizes": job_lists.SIZES,
        "picks": buttons.row_selection_choices(state, queue.flavour, may),
        "list_acts": buttons.buttons_for_list(queue, state, may, back=back) if window.rows else (),
    }


def _lines(
    request: HttpRequest, queue: Queue, state: JobState, found: tuple[JobRow, ...], now: int
) -> list[job_rows.Cells]:
    """Returns each row with its verdict and its buttons."""
    is_active = state is JobState.ACTIVE
    longest = stuck_queries.longest_lock(queue.ref) if is_active else 0
    judged = stuck_queries.verdicts_of_rows(queue, found, state_cache.newest_snapshot(), now) if is_active else {}
    may, back = buttons.action_permissions(request.user, queue.ref.deployment), _back(queue, state.value)
    lines = job_rows.cells(found, now, MASKED, longest)
    for row, line in zip(found, lines, strict=True):
        verdict = judged.get(row.id)
        if verdict:
            line.update(stuck_presenters.cells(verdict), lock=stuck_presenters.lock(line["lock"], verdict))
        if may.act:
            acts = buttons.buttons_for_row(row, verdict, queue.flavour, may, back=back)
            line.update(acts=acts, pick=url_identifiers.job_url_ref(row.ref) if acts is not None else "")
    return lines


def _schedulers(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    return {"schedulers": job_lists.schedulers(queue)}


def _workers(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    found = job_lists.workers(queue, state_cache.newest_snapshot())
    return {"workers": None if found is None else job_rows.workers(found)}


def _policy(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    current = config.current()
    return {
        "duties": queue_summary.scanner_summary(queue, current, now),
        "terms": queue_summary.queue_settings(queue, current, stuck_queries.newest_inbox()),
        "rights": queue_summary.rights(queue, current),
        "role": role_of(request.user),
        "policy_url": policy_table.PolicyTarget(queue.ref.deployment, queue.ref.base).address,
    }


def _history(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    hours, size = _hours(request), _size(request)
    # The window is read first: it raises if the store is down, and the series would wait for it once more.
    window = run_history.window(queue, cursor=request.GET.get("cursor", ""), size=size)
    series = _charts.get((queue.ref, hours), lambda: history.series(queue.ref, queue.flavour, hours))
    return {
        "series": series,
        "per": throughput_chart.bucket_label(series),
        "hours": hours,
        "ranges": [(choice, f"{choice} h" if choice <= 24 else f"{choice // 24} d") for choice in HOURS],
        "durations": job_rows.durations(run_history.recent_durations(queue)),
        "window": window,
        "rows": job_rows.cells(window.rows, now, MASKED),
        "size": size,
        "sizes": job_lists.SIZES,
    }


_PARTS = {"schedulers": _schedulers, "workers": _workers, "owners": _workers, "policy": _policy, "history": _history}


def _size(request: HttpRequest) -> int:
    written = request.GET.get("size", "")
    return next((size for size in job_lists.SIZES if str(size) == written), job_lists.SIZES[0])


def _hours(request: HttpRequest) -> int:
    written = request.GET.get("hours", "")
    return next((hours for hours in HOURS if str(hours) == written), HOURS[0])


def _link(request: HttpRequest, tab: QueueTab) -> str:
    """Returns the query string of this view, for refreshes."""
    parts = {"tab": tab.name}
    parts |= {key: request.GET[key] for key in ("size", "cursor", "hours") if request.GET.get(key)}
    return "?" + urlencode(parts)
