"""/queues/<deployment>/<base>/: shows one queue, its jobs by state in tabs, its workers, policy and history."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard import addresses, buttons, n8n_buttons, policy, policy_table, rows, verdicts
from dashboard.access import may_see_payloads, role_of
from dashboard.charts import throughput
from dashboard.discretion import MASKED
from dashboard.live import mirror
from recovery import config, shared_clock
from recovery.domain.counts import Library
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import QueueRef
from recovery.domain.row_verdicts import Terms
from recovery.domain.series import HOURS
from recovery.errors import StoreError
from recovery.reads import history, lists, runs, stuck, tables
from recovery.reads.lists import Queue
from recovery.reads.shared import Shared

CHART_LIFE = 15.0  # seconds; a chart's newest bucket is a closed minute
CHARTS_KEPT = 128

_charts = Shared(life=CHART_LIFE, kept=CHARTS_KEPT)
_FRAGMENTS = {
    State.ACTIVE: "queue/_active.html",
    State.COMPLETED: "queue/_completed.html",
    State.FAILED: "queue/_failed.html",
    State.DELAYED: "queue/_delayed.html",
}


@dataclass(frozen=True, slots=True)
class Tab:
    """Tab of the page; `state` if it lists jobs. `count` None: not known; "": has no count."""

    name: str
    title: str
    count: int | str | None = ""
    state: State | None = None

    @property
    def fragment(self) -> str:
        if self.state is None:
            return f"queue/_{self.name}.html"
        return _FRAGMENTS.get(self.state, "queue/_waiting.html")


@require_safe
def page(request: HttpRequest, deployment: str, base: str) -> HttpResponse:
    if elsewhere := n8n_buttons.place(QueueRef(deployment, base)):
        return redirect(elsewhere)
    return render(request, "queue/page.html", _context(request, deployment, base))


@require_safe
def tab(request: HttpRequest, deployment: str, base: str) -> HttpResponse:
    """Returns the tab as a fragment, with the head of the page."""
    return render(request, "queue/_tab.html", _context(request, deployment, base) | {"is_swap": True})


@require_safe
def chart(request: HttpRequest, deployment: str, base: str) -> JsonResponse:
    """Returns completed and failed jobs as a plotly figure, cached for all users."""
    queue = lists.locate(QueueRef(deployment, base), mirror.newest())
    hours = _hours(request)
    series = _charts.get((queue.ref, hours), lambda: history.series(queue.ref, queue.flavour, hours))
    return JsonResponse(throughput.figure(series))


def _context(request: HttpRequest, deployment: str, base: str) -> dict[str, Any]:
    queue = lists.locate(QueueRef(deployment, base), mirror.newest())
    tabs = _tabs(queue)
    chosen = _chosen(tabs, request.GET.get("tab", ""))
    now = shared_clock.now()
    may, back = buttons.may(request.user, queue.ref.deployment), _back(queue, chosen.name)
    return {
        "queue": queue,
        "sample": queue.sample,
        "is_table": queue.flavour.library is Library.TABLE,
        "sweep": _sweep(queue, now),
        "old": _old(queue),
        "tabs": tabs,
        "tab": chosen,
        "now": now,
        "link": _link(request, chosen),
        "sees_data": may_see_payloads(request.user),
        "may": may,
        "queue_acts": buttons.on_queue(queue, may, back=back),
        "why_not_resume": buttons.why_not_resume(queue, request.user),
        "back": back,
        **_contents(request, queue, chosen, now),
    }


def _sweep(queue: Queue, now: int) -> Terms | None:
    """Returns how lost rows of a job table are requeued; None for a queue in Redis."""
    if queue.flavour.library is not Library.TABLE:
        return None
    current = config.current()
    return tables.terms(current, queue.ref, now, stuck.sweep_of(queue.ref, mirror.newest(), now))


def _old(queue: Queue) -> str:
    """Returns why the numbers of this page are old; "" if they are not."""
    if queue.sample is None:
        return ""
    snapshot = mirror.newest()
    deployment = snapshot.deployment(queue.ref.deployment) if snapshot else None
    return queue.sample.error or (deployment.error if deployment else "") or mirror.health().reason


def _tabs(queue: Queue) -> list[Tab]:
    can, sample = queue.capabilities, queue.sample
    tabs = [Tab(state.value, _title(state), _count(queue, state), state) for state in can.states]
    if sample and sample.is_paused:  # if its jobs are in `wait`, an empty Paused tab would read as not paused
        tabs = [tab for tab in tabs if tab.state is not State.PAUSED or tab.count != 0]
    if can.schedulers:
        tabs.append(Tab("schedulers", "Schedulers"))
    hands = ("owners", "Owners") if queue.flavour.library is Library.TABLE else ("workers", "Workers")
    tabs.append(Tab(*hands, sample.workers if sample else None))
    tabs.append(Tab("policy", "Policy"))
    tabs.append(Tab("history", "History"))
    return tabs


def _chosen(tabs: list[Tab], name: str) -> Tab:
    """Returns the tab of this name; for a missing tab Paused, the tab Waiting."""
    named = {tab.name: tab for tab in tabs}
    return named.get(name) or (named[State.WAITING.value] if name == State.PAUSED else tabs[0])


def _back(queue: Queue, tab: str) -> str:
    """Returns the URL to which an action without scripts leads back."""
    return f"{reverse('queue', args=[queue.ref.deployment, queue.ref.base])}?tab={tab}"


def _title(state: State) -> str:
    return "Children" if state is State.WAITING_CHILDREN else state.value.capitalize()


def _count(queue: Queue, state: State) -> int | None:
    return lists.count_of(queue.sample, state) if queue.sample else None


def _contents(request: HttpRequest, queue: Queue, tab: Tab, now: int) -> dict[str, Any]:
    """Returns what the tab shows; if the store does not answer, a sentence replaces it and the head stays."""
    try:
        if tab.state is not None:
            return _jobs(request, queue, tab.state, now)
        return _PARTS[tab.name](request, queue, now)
    except StoreError as error:
        return {"trouble": error}


def _jobs(request: HttpRequest, queue: Queue, state: State, now: int) -> dict[str, Any]:
    size = _size(request)
    window = lists.window(queue, state, cursor=request.GET.get("cursor", ""), size=size)
    may, back = buttons.may(request.user, queue.ref.deployment), _back(queue, state.value)
    return {
        "window": window,
        "rows": _lines(request, queue, state, window.rows, now),
        "size": size,
        "sizes": lists.SIZES,
        "picks": buttons.of_rows(state, queue.flavour, may),
        "list_acts": buttons.on_list(queue, state, may, back=back) if window.rows else (),
    }


def _lines(request: HttpRequest, queue: Queue, state: State, found: tuple[JobRow, ...], now: int) -> list[rows.Cells]:
    """Returns each row with its verdict and its buttons."""
    is_active = state is State.ACTIVE
    longest = stuck.longest_lock(queue.ref) if is_active else 0
    judged = stuck.of_rows(queue, found, mirror.newest(), now) if is_active else {}
    may, back = buttons.may(request.user, queue.ref.deployment), _back(queue, state.value)
    lines = rows.cells(found, now, MASKED, longest)
    for row, line in zip(found, lines, strict=True):
        verdict = judged.get(row.id)
        if verdict:
            line.update(verdicts.cells(verdict), lock=verdicts.lock(line["lock"], verdict))
        if may.act:
            acts = buttons.of_row(row, verdict, queue.flavour, may, back=back)
            line.update(acts=acts, pick=addresses.written_job(row.ref) if acts is not None else "")
    return lines


def _schedulers(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    return {"schedulers": lists.schedulers(queue)}


def _workers(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    found = lists.workers(queue, mirror.newest())
    return {"workers": None if found is None else rows.workers(found)}


def _policy(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    current = config.current()
    return {
        "duties": policy.duties(queue, current, now),
        "terms": policy.terms(queue, current, stuck.newest()),
        "rights": policy.rights(queue, current),
        "role": role_of(request.user),
        "policy_url": policy_table.Place(queue.ref.deployment, queue.ref.base).address,
    }


def _history(request: HttpRequest, queue: Queue, now: int) -> dict[str, Any]:
    hours, size = _hours(request), _size(request)
    # The window is read first: it raises if the store is down, and the series would wait for it once more.
    window = runs.window(queue, cursor=request.GET.get("cursor", ""), size=size)
    series = _charts.get((queue.ref, hours), lambda: history.series(queue.ref, queue.flavour, hours))
    return {
        "series": series,
        "per": throughput.per(series),
        "hours": hours,
        "ranges": [(choice, f"{choice} h" if choice <= 24 else f"{choice // 24} d") for choice in HOURS],
        "durations": rows.durations(runs.lately(queue)),
        "window": window,
        "rows": rows.cells(window.rows, now, MASKED),
        "size": size,
        "sizes": lists.SIZES,
    }


_PARTS = {"schedulers": _schedulers, "workers": _workers, "owners": _workers, "policy": _policy, "history": _history}


def _size(request: HttpRequest) -> int:
    written = request.GET.get("size", "")
    return next((size for size in lists.SIZES if str(size) == written), lists.SIZES[0])


def _hours(request: HttpRequest) -> int:
    written = request.GET.get("hours", "")
    return next((hours for hours in HOURS if str(hours) == written), HOURS[0])


def _link(request: HttpRequest, tab: Tab) -> str:
    """Returns the query string of this view, for refreshes."""
    parts = {"tab": tab.name}
    parts |= {key: request.GET[key] for key in ("size", "cursor", "hours") if request.GET.get(key)}
    return "?" + urlencode(parts)
