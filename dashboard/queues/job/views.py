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

from dashboard.accounts import actors
from dashboard.accounts.roles import UserRole, may_see_payloads, needs
from dashboard.actions import buttons
from dashboard.base import job_rows
from dashboard.base.json_tree import JsonTree, tree
from dashboard.base.redaction import MASKED, PayloadPart, PayloadRedactor
from dashboard.live import state_cache
from dashboard.n8n import execution_buttons, loss_presenters
from dashboard.n8n import presenters as n8n_presenters
from dashboard.queues.job import job_log, job_timeline, server_logs
from dashboard.server.page_concurrency import heavy
from dashboard.stuck import presenters as stuck_presenters
from recovery import shared_clock
from recovery.actions.audit import payload_reveals
from recovery.backends.base import LOAD_LIMIT
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.jobs import BoundedText, Job, JobState
from recovery.domain.queues.job_timeline import build_timeline
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.stuck.types import Verdict
from recovery.errors import Missing, WrongType
from recovery.n8n import job_execution as n8n
from recovery.reads.audit import queries as audit_queries
from recovery.reads.queues import job_details, job_lists
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import incidents
from recovery.reads.stuck import queries as stuck_queries


@dataclass(frozen=True, slots=True)
class JobTab:
    name: str
    title: str
    count: int | str | None = ""

    @property
    def fragment(self) -> str:
        return f"queues/job/_{'payload' if self.name in _PAYLOADS else self.name}.html"


@dataclass(frozen=True, slots=True)
class PayloadView:
    """JSON field as the page shows it. `size` is that of the whole in bytes; `is_cut`: not all of it was read."""

    tree: JsonTree
    size: int
    is_cut: bool


@dataclass(frozen=True, slots=True)
class HashField:
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
_PAYLOADS: dict[str, Callable[[Job], BoundedText]] = {
    "data": lambda job: job.data,
    "options": lambda job: job.options,
    "result": lambda job: job.result,
}


@require_safe
@heavy("whole")
def page(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    if elsewhere := execution_buttons.execution_url(QueueRef(deployment, base), id):
        return redirect(elsewhere)
    return render(request, "queues/job/page.html", _context(request, *_found(request, deployment, base, id)))


@require_safe
@heavy("whole")
def life(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    """Returns the head and the timeline as a fragment, which the page fetches while the job is not finished."""
    context = _life(request, *_found(request, deployment, base, id))
    return render(request, "queues/job/_life.html", context | {"is_swap": True})


@require_safe
@heavy("whole")
def tab(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    return render(request, "queues/job/_tab.html", _context(request, *_found(request, deployment, base, id)))


@heavy("whole")
@require_POST
@needs(UserRole.OPERATOR)
def reveal(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    """Shows one tab unmasked, after an audit entry about it. Raises Missing, NotRecorded."""
    part = _REVEALED.get(request.GET.get("tab", ""))
    if part is None:
        raise Missing("This tab has nothing to reveal.")
    queue, job = _found(request, deployment, base, id)
    number = payload_reveals.record_of_job(actors.actor_from_request(request), job.row.ref, [part])
    context = _context(request, queue, job, PayloadRedactor(frozenset({part}))) | {"revealed": number}
    return render(request, f"queues/job/{'_tab' if 'HX-Request' in request.headers else 'page'}.html", context)


@require_safe
@heavy("whole")
def log(request: HttpRequest, deployment: str, base: str, id: str) -> HttpResponse:
    """Returns the log lines behind the last one on the page, or the whole tab if that line has moved."""
    queue, job = _found(request, deployment, base, id)
    first, after, is_over = _number(request, "first"), _number(request, "after"), job.row.state.is_finished
    if not (after or job.log_count or is_over):
        return HttpResponse(status=204)
    is_near = 0 < after <= first + job_log.SHOWN_MOST
    found = job_log.lines_after(queue, job, MASKED, after, request.GET.get("mark", "")) if is_near else None
    if found is None:
        answer = tab(request, deployment, base, id)
        answer["HX-Retarget"], answer["HX-Reswap"] = "#tab", "outerHTML"
        return answer
    if not (found.lines or is_over):
        return HttpResponse(status=204)
    context = {"queue": queue, "row": job.row, "log": found, "first": first, "follows": not is_over}
    return render(request, "queues/job/_log_lines.html", context)


def _number(request: HttpRequest, name: str) -> int:
    text = request.GET.get(name, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _found(request: HttpRequest, deployment: str, base: str, id: str) -> tuple[Queue, Job]:
    queue = job_lists.locate(QueueRef(deployment, base), state_cache.newest_snapshot())
    return queue, job_details.job(queue, id, whole="whole" in request.GET)


def _context(request: HttpRequest, queue: Queue, job: Job, see: PayloadRedactor = MASKED) -> dict[str, Any]:
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
    found = n8n.execution_of_job(job.row.ref, job.data.value)
    offer = loss_presenters.rescues(found.n8n, [found.id]).get(found.id) if found else None
    acts = execution_buttons.buttons_for_job_execution(found, offer, request.user, back=request.get_full_path())
    return {"of_n8n": n8n_presenters.job_section(found, offer.sentence if offer else ""), "execution_acts": acts}


def _life(request: HttpRequest, queue: Queue, job: Job) -> dict[str, Any]:
    now, see = shared_clock.now(), MASKED
    verdict = stuck_queries.verdicts_of_rows(queue, (job.row,), state_cache.newest_snapshot(), now).get(job.row.id)
    lock = (
        job_rows.lock_bar(job.row, stuck_queries.longest_lock(queue.ref)) if job.row.state is JobState.ACTIVE else None
    )
    is_table = queue.flavour.library is QueueLibrary.TABLE
    told = build_timeline(job, now, reason=see.text(job.row.reason), of_row=is_table)
    found = incidents.incidents_of_job(job.row.ref, added_at=job.row.added_at)
    return {
        **(stuck_presenters.cells(verdict) if verdict else {}),
        "acts": _acts(request, queue, job, verdict),
        "queue": queue,
        "job": job,
        "row": job.row,
        "name": printable(job.row.name),
        "events": job_timeline.merge_events(
            told, audit_queries.actions_on_job(job.row.ref, added_at=job.row.added_at), found, now
        ),
        "lock": stuck_presenters.lock(lock, verdict) if lock else None,
        "progress": see.payload(queue.ref, PayloadPart.PROGRESS, job.row.progress),
        "is_table": is_table,
    }


def _acts(request: HttpRequest, queue: Queue, job: Job, verdict: Verdict | None) -> buttons.ActionButtons | None:
    may = buttons.action_permissions(request.user, queue.ref.deployment)
    if not may.act:
        return None
    back = reverse("job", args=[queue.ref.deployment, queue.ref.base, job.row.id])
    return buttons.buttons_for_job(job.row, verdict, queue.flavour, may, back=back, spread=3)


def _tabs(queue: Queue, job: Job) -> list[JobTab]:
    """Returns the tabs of a job: the error first if the job failed, and no tab for what does not exist."""
    is_table = queue.flavour.library is QueueLibrary.TABLE
    tabs = [JobTab("data", "Data")] if is_table else [JobTab("data", "Data"), JobTab("options", "Options")]
    if job.result.size:
        tabs.append(JobTab("result", "Result"))
    if job.reason or job.stack or job.deferred_failure:
        tabs.insert(
            0 if job.row.state is JobState.FAILED else len(tabs), JobTab("error", "Error", len(job.stack) or "")
        )
    if not is_table:
        tabs += [JobTab("logs", "Logs", job.log_count), JobTab(SERVER_LOGS, "Server logs")]
    if queue.capabilities.families and (job.row.parent or job.has_children):
        tabs.append(JobTab("family", "Family"))
    return [*tabs, JobTab("raw", "Raw", len(job.fields))]


def _contents(request: HttpRequest, queue: Queue, job: Job, tab: JobTab, see: PayloadRedactor) -> dict[str, Any]:
    """Returns what the tab shows; a Redis key of the wrong type breaks this tab only."""
    try:
        return _of_tab(request, queue, job, tab, see)
    except WrongType as fault:
        return {"trouble": fault}


def _of_tab(request: HttpRequest, queue: Queue, job: Job, tab: JobTab, see: PayloadRedactor) -> dict[str, Any]:
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
        mine = incidents.incidents_of_job(job.row.ref, added_at=job.row.added_at)
        return dict(server_logs.context(queue, job.row, mine, now))
    if tab.name == "family":
        return {"family": job_details.family(queue, job.row.id)}
    return {"fields": list(_fields(queue, job, see, is_whole="whole" in request.GET))}


def _payload(queue: Queue, part: PayloadPart, text: BoundedText, see: PayloadRedactor) -> PayloadView:
    is_shape = part not in see.revealed
    shown_text = see.payload(queue.ref, part, text.value)
    return PayloadView(tree(shown_text, is_cut=text.is_cut and not is_shape, is_shape=is_shape), text.size, text.is_cut)


def _fields(queue: Queue, job: Job, see: PayloadRedactor, *, is_whole: bool) -> Iterator[HashField]:
    left = LOAD_LIMIT if is_whole else RAW_LIMIT
    for number, (name, text) in enumerate(job.fields):
        value = see.field(queue.ref, name, text.value)
        fitting = value[: left if is_whole else min(left, RAW_FIELD_LIMIT)]
        left -= len(fitting)
        yield HashField(printable(see.name(name, number)), fitting, text.size, text.is_cut or len(fitting) < len(value))


def _error(job: Job, see: PayloadRedactor) -> dict[str, Any]:
    """Returns the stack traces, newest attempt first: it is the one that matters."""
    attempts = list(enumerate(job.stack, 1))[-STACKS_SHOWN:]
    return {
        "reason": see.text(job.reason),
        "attempts": [(number, see.text(stack)) for number, stack in reversed(attempts)],
        "failures": len(job.stack),
        "deferred": see.text(job.deferred_failure),
    }
