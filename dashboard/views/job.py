"""/queues/<deployment>/<base>/jobs/<id>: shows one job, its timeline on the left, its data in tabs on the right."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_POST, require_safe

from dashboard import actors, buttons, job_log, n8n_buttons, n8n_cells, n8n_losses, past, rows, server_logs, verdicts
from dashboard.access import Role, may_see_payloads, needs
from dashboard.discretion import MASKED, Discretion, PayloadPart
from dashboard.live import mirror
from dashboard.page_concurrency import heavy
from dashboard.tree import Tree, tree
from recovery import shared_clock
from recovery.actions import payload_reveals
from recovery.backends.base import LOAD_LIMIT
from recovery.domain.counts import Library
from recovery.domain.jobs import Job, State, Text
from recovery.domain.refs import QueueRef, shown
from recovery.domain.timeline import timeline
from recovery.domain.verdicts import Verdict
from recovery.errors import Missing, WrongType
from recovery.reads import audit, incidents, jobs, lists, stuck
from recovery.reads.lists import Queue
from recovery.reads.n8n import single as n8n


@dataclass(frozen=True, slots=True)
class Tab:
    name: str
    title: str
    count: int | str | None = ""

    @property
    def fragment(self) -> str:
        return f"job/_{'payload' if self.name in _PAYLOADS else self.name}.html"


@dataclass(frozen=True, slots=True)
class Payload:
    """JSON field as the page shows it. `size` is that of the whole in bytes; `is_cut`: not all of it was read."""

    tree: Tree
    size: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class Field:
    """Field of the job's hash, undecoded."""

    name: str
    text: str
    size: int
    is_cut: bool


STACKS_SHOWN = 20  # failures; the field has the older ones
RAW_FIELD_LIMIT = 4_096  # characters of one field in the table of all fields, and of all of them
RAW_LIMIT = 65_536
SERVER_LOGS = "server-logs"
_REVEALED = {part.value: part for part in PayloadPart}  # tabs that hold something to reveal, by name
_KEPT = ("whole", "from")  # URL parameters: which part of a tab is shown
_PAYLOADS: dict[str, Callable[[Job], Text]] = {
    "data": lambda job: job.data,
    "options": lambda job: job.options,
    "result": lambda job: job.result,
}


@require_safe
@heavy("whole")
def page(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    if elsewhere := n8n_buttons.place(QueueRef(deployment, base), id):
        return redirect(elsewhere)
    return render(request, "job/page.html", _context(request, *_found(request, deployment, base, id)))


@require_safe
@heavy("whole")
def life(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    """Returns the head and the timeline as a fragment, which the page fetches while the job is not finished."""
    context = _life(request, *_found(request, deployment, base, id))
    return render(request, "job/_life.html", context | {"is_swap": True})


@require_safe
@heavy("whole")
def tab(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    return render(request, "job/_tab.html", _context(request, *_found(request, deployment, base, id)))


@heavy("whole")
@require_POST
@needs(Role.OPERATOR)
def reveal(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    """Shows one tab unmasked, after an audit entry about it. Raises Missing, NotRecorded."""
    part = _REVEALED.get(request.GET.get("tab", ""))
    if part is None:
        raise Missing("This tab has nothing to reveal.")
    queue, job = _found(request, deployment, base, id)
    number = payload_reveals.record_of_job(actors.person(request), job.row.ref, [part])
    context = _context(request, queue, job, Discretion(frozenset({part}))) | {"revealed": number}
    return render(request, f"job/{'_tab' if 'HX-Request' in request.headers else 'page'}.html", context)


@require_safe
@heavy("whole")
def log(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    """Returns the log lines behind the last one on the page, or the whole tab if that line has moved."""
    queue, job = _found(request, deployment, base, id)
    first, after, is_over = _number(request, "first"), _number(request, "after"), job.row.state.is_finished
    if not (after or job.log_count or is_over):
        return HttpResponse(status=204)
    is_near = 0 < after <= first + job_log.SHOWN_MOST
    found = job_log.behind(queue, job, MASKED, after, request.GET.get("mark", "")) if is_near else None
    if found is None:
        answer = tab(request, deployment, base, id)
        answer["HX-Retarget"], answer["HX-Reswap"] = "#tab", "outerHTML"
        return answer
    if not (found.lines or is_over):
        return HttpResponse(status=204)
    context = {"queue": queue, "row": job.row, "log": found, "first": first, "follows": not is_over}
    return render(request, "job/_log_lines.html", context)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _found(request: HttpRequest, deployment: str, base: str, id: str) -> tuple[Queue, Job]:
    queue = lists.locate(QueueRef(deployment, base), mirror.newest())
    return queue, jobs.job(queue, id, whole="whole" in request.GET)


def _context(request: HttpRequest, queue: Queue, job: Job, see: Discretion = MASKED) -> dict[str, Any]:
    tabs = _tabs(queue, job)
    chosen = next((tab for tab in tabs if tab.name == request.GET.get("tab")), tabs[0])
    return {
        **_life(request, queue, job),
        **_of_n8n(request, job),
        "tabs": tabs,
        "tab": chosen,
        "is_masked": chosen.name in _REVEALED and not see.revealed,
        "may_reveal": may_see_payloads(request.user),
        "tab_query": urlencode(
            {"tab": chosen.name} | {name: request.GET[name] for name in _KEPT if name in request.GET}
        ),
        **_contents(request, queue, job, chosen, see),
    }


def _of_n8n(request: HttpRequest, job: Job) -> dict[str, Any]:
    found = n8n.of_job(job.row.ref, job.data.value)
    offer = n8n_losses.rescues(found.n8n, [found.id]).get(found.id) if found else None
    acts = n8n_buttons.of_single(found, offer, request.user, back=request.get_full_path())
    return {"of_n8n": n8n_cells.of_job(found, offer.sentence if offer else ""), "execution_acts": acts}


def _life(request: HttpRequest, queue: Queue, job: Job) -> dict[str, Any]:
    now, see = shared_clock.now(), MASKED
    verdict = stuck.of_rows(queue, (job.row,), mirror.newest(), now).get(job.row.id)
    lock = rows.lock_bar(job.row, stuck.longest_lock(queue.ref)) if job.row.state is State.ACTIVE else None
    is_table = queue.flavour.library is Library.TABLE
    told = timeline(job, now, reason=see.text(job.row.reason), of_row=is_table)
    found = incidents.of_job(job.row.ref, added_at=job.row.added_at)
    return {
        **(verdicts.cells(verdict) if verdict else {}),
        "acts": _acts(request, queue, job, verdict),
        "queue": queue,
        "job": job,
        "row": job.row,
        "name": shown(job.row.name),
        "events": past.woven(told, audit.of_job(job.row.ref, added_at=job.row.added_at), found, now),
        "lock": verdicts.lock(lock, verdict) if lock else None,
        "progress": see.payload(queue.ref, PayloadPart.PROGRESS, job.row.progress),
        "is_table": is_table,
    }


def _acts(request: HttpRequest, queue: Queue, job: Job, verdict: Verdict | None) -> buttons.Acts | None:
    may = buttons.may(request.user, queue.ref.deployment)
    if not may.act:
        return None
    back = reverse("job", args=[queue.ref.deployment, queue.ref.base, job.row.id])
    return buttons.of_job(job.row, verdict, queue.flavour, may, back=back, spread=3)


def _tabs(queue: Queue, job: Job) -> list[Tab]:
    """Returns the tabs of a job: the error first if the job failed, and no tab for what does not exist."""
    is_table = queue.flavour.library is Library.TABLE
    tabs = [Tab("data", "Data")] if is_table else [Tab("data", "Data"), Tab("options", "Options")]
    if job.result.size:
        tabs.append(Tab("result", "Result"))
    if job.reason or job.stack or job.deferred_failure:
        tabs.insert(0 if job.row.state is State.FAILED else len(tabs), Tab("error", "Error", len(job.stack) or ""))
    if not is_table:
        tabs += [Tab("logs", "Logs", job.log_count), Tab(SERVER_LOGS, "Server logs")]
    if queue.capabilities.families and (job.row.parent or job.has_children):
        tabs.append(Tab("family", "Family"))
    return [*tabs, Tab("raw", "Raw", len(job.fields))]


def _contents(request: HttpRequest, queue: Queue, job: Job, tab: Tab, see: Discretion) -> dict[str, Any]:
    """Returns what the tab shows; a Redis key of the wrong type breaks this tab only."""
    try:
        return _of_tab(request, queue, job, tab, see)
    except WrongType as fault:
        return {"trouble": fault}


def _of_tab(request: HttpRequest, queue: Queue, job: Job, tab: Tab, see: Discretion) -> dict[str, Any]:
    if tab.name in _PAYLOADS:
        return {"payload": _payload(queue, PayloadPart(tab.name), _PAYLOADS[tab.name](job), see)}
    if tab.name == "error":
        return _error(job, see)
    if tab.name == "logs":
        found = job_log.window(queue, job, see, request.GET.get("from", ""))
        follows = found.later is None and not job.row.state.is_finished and not see.revealed
        return {"log": found, "first": found.lines[0][0] if found.lines else 0, "follows": follows}
    if tab.name == SERVER_LOGS:
        now = shared_clock.now()
        mine = incidents.of_job(job.row.ref, added_at=job.row.added_at)
        return dict(server_logs.context(queue, job.row, mine, now))
    if tab.name == "family":
        return {"family": jobs.family(queue, job.row.id)}
    return {"fields": list(_fields(queue, job, see, is_whole="whole" in request.GET))}


def _payload(queue: Queue, part: PayloadPart, text: Text, see: Discretion) -> Payload:
    is_shape = part not in see.revealed
    shown_text = see.payload(queue.ref, part, text.value)
    return Payload(tree(shown_text, is_cut=text.is_cut and not is_shape, is_shape=is_shape), text.size, text.is_cut)


def _fields(queue: Queue, job: Job, see: Discretion, *, is_whole: bool) -> Iterator[Field]:
    left = LOAD_LIMIT if is_whole else RAW_LIMIT
    for number, (name, text) in enumerate(job.fields):
        value = see.field(queue.ref, name, text.value)
        fitting = value[: left if is_whole else min(left, RAW_FIELD_LIMIT)]
        left -= len(fitting)
        yield Field(shown(see.name(name, number)), fitting, text.size, text.is_cut or len(fitting) < len(value))


def _error(job: Job, see: Discretion) -> dict[str, Any]:
    """Returns the stack traces, newest attempt first: it is the one that matters."""
    attempts = list(enumerate(job.stack, 1))[-STACKS_SHOWN:]
    return {
        "reason": see.text(job.reason),
        "attempts": [(number, see.text(stack)) for number, stack in reversed(attempts)],
        "failures": len(job.stack),
        "deferred": see.text(job.deferred_failure),
    }
