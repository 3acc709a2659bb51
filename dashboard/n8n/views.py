"""/stuck/n8n: compares each n8n's jobs with its executions, as the scheduler found them at its last check."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils.http import urlencode
from django.views.decorators.http import require_safe

from dashboard.actions import action_request, buttons
from dashboard.actions.buttons import Button
from dashboard.base.job_rows import Cells
from dashboard.live import state_cache
from dashboard.n8n import execution_buttons, loss_presenters
from dashboard.n8n import presenters as n8n_presenters
from dashboard.n8n.presenters import PairFilter
from recovery import shared_clock
from recovery.config import N8nInstallation
from recovery.domain.identifiers import QueueRef, printable
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison
from recovery.domain.n8n.comparison_context import REPORTED_AFTER
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.n8n.instances import (
    NAMES,
    EndedInstance,
    InstanceEnding,
    InstanceHistory,
    N8nInstance,
    concerns,
    summary,
)
from recovery.domain.n8n.rescue import RescueOffer
from recovery.errors import ConfigError
from recovery.n8n import comparison_store, instance_store
from recovery.stores.registry import registry

# -- instance presenters
# Presents n8n's processes on /stuck/n8n.


SHOWN = 100  # processes listed; all are counted
_ENDED = {
    InstanceEnding.STOPPED: ("stopped", ""),
    InstanceEnding.DIED: ("died: it did not shut down", "stuck"),
    InstanceEnding.UNKNOWN: ("gone", "warn"),
}


def instance_table(history: InstanceHistory | None, now: int) -> dict[str, Any] | None:
    """Returns the table of n8n's processes; None: not checked yet, or this n8n keeps no registry."""
    if history is None or not (history.here or history.gone or history.fault or history.unknown):
        return None
    lines = [_here(one, now) for one in history.instances] + [_gone(one) for one in reversed(history.gone)]
    return {
        "summary": printable(summary(history.instances)) if history.here else "",
        "checked_at": history.checked_at,
        "concerns": [printable(one) for one in concerns(history, now)],
        "lines": lines[:SHOWN],
        "left_out": max(0, len(lines) - SHOWN),
    }


def _here(one: N8nInstance, now: int) -> Cells:
    is_silent = one.is_silent(now)
    return _instance_line(one) | {
        "state": "no heartbeat" if is_silent else "alive",
        "tone": "stuck" if is_silent else "",
    }


def _gone(gone: EndedInstance) -> Cells:
    state, tone = _ENDED[gone.ending]
    return _instance_line(gone.instance) | {"state": state, "tone": tone}


def _instance_line(one: N8nInstance) -> Cells:
    role = one.role if one.type == "main" and one.role != "unset" else ""
    return {
        "host": printable(one.host),
        "what": " · ".join(filter(None, (NAMES.get(one.type, "unknown type"), role, printable(one.pool)))),
        "version": printable(one.version),
        "since": one.registered_at,
        "seen": one.seen_at,
    }


# -- views


SIZE = 100  # pairs on a page: more than a person looks through at once


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    return render(request, "n8n/page.html", _context(request))


@require_safe
def rows(request: HttpRequest) -> HttpResponse:
    return render(request, "n8n/_rows.html", _context(request))


def has_n8n() -> bool:
    """Returns True if there is anything to show: a configured n8n, or a queue of n8n."""
    return bool(_installations() or _unnamed())


def _context(request: HttpRequest) -> dict[str, Any]:
    chosen, found, known = (
        PairFilter.of(request.GET),
        comparison_store.newest(),
        {one.name: one for one in _installations()},
    )
    here = [truth for truth in found if truth.name in known]
    pairs = [(truth, pair) for truth in here for pair in (*truth.pairs, *truth.matching) if chosen.holds(truth, pair)]
    start = _start(request, len(pairs))
    lines = _lines(request, pairs[start : start + SIZE], known)
    looked = {truth.name for truth in here}
    compared = [truth for truth in here if not truth.fault and not comparison_store.is_old(truth)]
    return {
        "truths": [_head(truth) for truth in here if chosen.n8n in ("", truth.name)],
        "has_looked": bool(here),
        "compared": bool(compared),
        "is_whole": len(compared) == sum(bool(one.database) for one in known.values()),
        "unlisted_executions": sum(truth.executions for truth in compared),
        "waiting": [one for one in known.values() if one.database and one.name not in looked],
        "lacking": [one for one in known.values() if not one.database],
        "unnamed": _unnamed(),
        "names": sorted(known) if len(known) > 1 else [],
        "kinds": n8n_presenters.kinds(here, chosen.mismatch),
        "chosen": chosen,
        "lines": lines,
        "rates": [row for truth in compared for row in n8n_presenters.error_rates(truth, known.get(truth.name))],
        "uncounted": [truth.name for truth in compared if truth.error_rates is None],
        "picks": _picks(request, lines),
        "back": _back(request),
        "matching_acts": _matching_acts(request, pairs, chosen, known),
        "matching": len(pairs),
        "link": chosen.address + (f"&from={start}" if start else ""),
        "before": _at(chosen, max(0, start - SIZE)) if start else "",
        "after": _at(chosen, start + SIZE) if start + SIZE < len(pairs) else "",
        **loss_presenters.context(known, chosen, request.user, back=f"{reverse('n8n')}{chosen.address}"),
    }


def _installations() -> tuple[N8nInstallation, ...]:
    try:
        return registry().config.n8n
    except ConfigError:
        return ()


def _unnamed() -> list[QueueRef]:
    """Returns queues that look like n8n's and belong to no configured n8n."""
    snapshot, known = state_cache.newest_snapshot(), _installations()
    samples = snapshot.queues if snapshot else ()
    seen = (sample.ref for sample in samples if is_n8n(sample.ref, sample.flavour))
    return [ref for ref in seen if not any(one.owns(ref) for one in known)]


def _head(truth: N8nComparison) -> dict[str, Any]:
    return {
        "truth": truth,
        "is_old": comparison_store.is_old(truth),
        "unlisted": truth.mismatches - len(truth.pairs),
        "fresh": truth.fresh(REPORTED_AFTER),
        "instances": instance_table(instance_store.newest().get(truth.name), shared_clock.now()),
    }


def _lines(
    request: HttpRequest, pairs: Sequence[tuple[N8nComparison, JobExecutionPair]], known: dict[str, N8nInstallation]
) -> list[dict[str, Any]]:
    back = _back(request)
    listed = {name: [pair.id for truth, pair in pairs if truth.name == name and pair.finding] for name in known}
    rescues = {name: loss_presenters.rescues(known[name], ids) for name, ids in listed.items() if ids}
    return [
        _line(pair, known.get(truth.name), rescues.get(truth.name, {}).get(pair.id), request.user, back=back)
        for truth, pair in pairs
    ]


def _line(
    pair: JobExecutionPair, n8n: N8nInstallation | None, offer: RescueOffer | None, user: object, *, back: str
) -> dict[str, Any]:
    can_rescue = offer is not None and offer.is_open
    acts = execution_buttons.buttons_for_pair(pair, n8n, user, back=back, can_rescue=can_rescue)
    line = n8n_presenters.line(pair, n8n)
    return line | {
        "rescue": offer.sentence if offer else "",
        "acts": acts,
        "pick": execution_buttons.checkbox_value(pair, n8n, user),
    }


def _back(request: HttpRequest) -> str:
    return f"{reverse('n8n')}{PairFilter.of(request.GET).address}"


def _picks(request: HttpRequest, lines: Sequence[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Returns the actions on selected rows; () if no row can be selected."""
    if not any(line["pick"] for line in lines):
        return ()
    return buttons.selection_choices(action_request.MATCHING_EXECUTIONS, buttons.action_permissions(request.user))


def _matching_acts(
    request: HttpRequest,
    pairs: Sequence[tuple[N8nComparison, JobExecutionPair]],
    chosen: PairFilter,
    known: dict[str, N8nInstallation],
) -> tuple[Button, ...]:
    """Returns the actions on all matching rows, if they do not fit on one page or a filter is set."""
    if len(pairs) < 2 or (len(pairs) <= SIZE and not chosen):
        return ()
    return execution_buttons.buttons_for_matching(pairs, known, chosen, request.user, back=_back(request))


def _start(request: HttpRequest, total: int) -> int:
    written = request.GET.get("from", "")
    start = int(written) if written.isascii() and written.isdigit() and len(written) < 7 else 0
    return min(start, max(0, total - 1)) // SIZE * SIZE


def _at(chosen: PairFilter, start: int) -> str:
    return f"?{urlencode(chosen.told | {'from': str(start)})}"
