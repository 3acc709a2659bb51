"""Presents the history of n8n's lost executions on /stuck/n8n, with the rescue that is possible and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dashboard.actions import buttons
from dashboard.actions.buttons import ActionButtons, Button
from dashboard.base.job_rows import Cells, brief
from dashboard.n8n import presenters as n8n_presenters
from dashboard.n8n.presenters import PairFilter
from recovery import shared_clock
from recovery.actions import catalog
from recovery.config import N8nInstallation
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import printable
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.n8n.rescue import RescueOffer
from recovery.n8n import api_client, lost_executions

LISTED = 50  # on the page; the API and the shell have more
_TONES = {
    LostExecutionOutcome.AT_RISK: "worker-lost",
    LostExecutionOutcome.LOST: "stuck",
    LostExecutionOutcome.RESCUED: "",
    LostExecutionOutcome.RETRIED: "",
}


def context(known: Mapping[str, N8nInstallation], chosen: PairFilter, user: object, *, back: str) -> dict[str, object]:
    """Returns the section below the table; nothing where no n8n has a database."""
    names = [name for name, n8n in known.items() if n8n.database and chosen.n8n in ("", name)]
    execution = chosen.execution.strip()
    found = [loss for name in names for loss in lost_executions.newest(name, execution=execution, most=LISTED)]
    found.sort(key=lambda loss: (loss.outcome is not LostExecutionOutcome.AT_RISK, -loss.noticed_at))
    counts: dict[LostExecutionOutcome, int] = {}
    for name in names:
        for outcome, count in lost_executions.counts(name).items():
            counts[outcome] = counts.get(outcome, 0) + count
    return {
        "has_losses": bool(names),
        "losses": [_line(loss, known[loss.n8n], user, back=back) for loss in found[:LISTED]],
        "loss_counts": [(outcome.value, counts[outcome]) for outcome in LostExecutionOutcome if outcome in counts],
    }


def rescues(n8n: N8nInstallation, ids: Iterable[str]) -> dict[str, RescueOffer]:
    """Returns the rescue that is offered for each of these executions that the history has."""
    now = shared_clock.now()
    found = lost_executions.newest_by_execution(n8n.name, ids) if n8n.database else {}
    return {id: lost_executions.offered(loss, n8n, now) for id, loss in found.items()}


def button(n8n: N8nInstallation, execution: str, back: str) -> Button:
    made = buttons.job_button(Action.RESCUE, n8n.executions.job(execution), back)
    return replace(made, title=f"{catalog.ENTRIES[Action.RESCUE].label} execution {execution}")


def _line(loss: LostExecutionRecord, n8n: N8nInstallation, user: object, *, back: str) -> Cells:
    offer = lost_executions.offered(loss, n8n, shared_clock.now())
    may = buttons.action_permissions(user, n8n.queue.deployment)
    can = offer.is_open and may.do(Action.RESCUE) and not api_client.lacks(n8n)
    acts = ActionButtons(f"execution {loss.execution}", (replace(button(n8n, loss.execution, back), kind="primary"),))
    return {
        "id": printable(loss.execution),
        "anchor": f"loss-{loss.number}",
        "editor": n8n_presenters.editor(n8n, loss.workflow, loss.execution),
        "title": printable(loss.title) or printable(loss.workflow),
        "worker": printable(loss.worker),
        "cause": loss.cause,
        "job": brief(loss.job.label),
        "verdict": loss.verdict.value,
        "noticed": loss.noticed_at,
        "ended": loss.ended_at,
        "outcome": loss.outcome.value,
        "tone": _TONES[loss.outcome],
        "again": loss.retried_as,
        "again_editor": n8n_presenters.editor(n8n, loss.workflow, loss.retried_as) if loss.retried_as else "",
        "offer": offer.sentence,
        "copied": loss.copied_at,
        "acts": acts if can else None,
    }
