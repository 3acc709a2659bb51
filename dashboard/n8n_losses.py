"""Presents the history of n8n's lost executions on /stuck/n8n, with the rescue that is possible and for how long."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from dashboard import buttons, n8n_cells
from dashboard.buttons import Acts, Button
from dashboard.n8n_cells import PairFilter
from dashboard.rows import Cells, brief
from recovery import shared_clock
from recovery.actions import catalog
from recovery.config import N8n
from recovery.domain.acting import Act
from recovery.domain.n8n.losses import Loss, LossOutcome
from recovery.domain.n8n.rescue import RescueOffer
from recovery.domain.refs import shown
from recovery.n8n import public
from recovery.reads.n8n import losses

LISTED = 50  # on the page; the API and the shell have more
_TONES = {
    LossOutcome.AT_RISK: "worker-lost",
    LossOutcome.LOST: "stuck",
    LossOutcome.RESCUED: "",
    LossOutcome.RETRIED: "",
}


def context(known: Mapping[str, N8n], chosen: PairFilter, user: object, *, back: str) -> dict[str, object]:
    """Returns the section below the table; nothing where no n8n has a database."""
    names = [name for name, n8n in known.items() if n8n.database and chosen.n8n in ("", name)]
    execution = chosen.execution.strip()
    found = [loss for name in names for loss in losses.newest(name, execution=execution, most=LISTED)]
    found.sort(key=lambda loss: (loss.outcome is not LossOutcome.AT_RISK, -loss.noticed_at))
    counts: dict[LossOutcome, int] = {}
    for name in names:
        for outcome, count in losses.counts(name).items():
            counts[outcome] = counts.get(outcome, 0) + count
    return {
        "has_losses": bool(names),
        "losses": [_line(loss, known[loss.n8n], user, back=back) for loss in found[:LISTED]],
        "loss_counts": [(outcome.value, counts[outcome]) for outcome in LossOutcome if outcome in counts],
    }


def rescues(n8n: N8n, ids: Iterable[str]) -> dict[str, RescueOffer]:
    """Returns the rescue that is offered for each of these executions that the history has."""
    now = shared_clock.now()
    found = losses.of_executions(n8n.name, ids) if n8n.database else {}
    return {id: losses.offered(loss, n8n, now) for id, loss in found.items()}


def button(n8n: N8n, execution: str, back: str) -> Button:
    made = buttons.job_button(Act.RESCUE, n8n.executions.job(execution), back)
    return replace(made, title=f"{catalog.ENTRIES[Act.RESCUE].label} execution {execution}")


def _line(loss: Loss, n8n: N8n, user: object, *, back: str) -> Cells:
    offer = losses.offered(loss, n8n, shared_clock.now())
    may = buttons.may(user, n8n.queue.deployment)
    can = offer.is_open and may.do(Act.RESCUE) and not public.lacks(n8n)
    acts = Acts(f"execution {loss.execution}", (replace(button(n8n, loss.execution, back), kind="primary"),))
    return {
        "id": shown(loss.execution),
        "anchor": f"loss-{loss.number}",
        "editor": n8n_cells.editor(n8n, loss.workflow, loss.execution),
        "title": shown(loss.title) or shown(loss.workflow),
        "worker": shown(loss.worker),
        "cause": loss.cause,
        "job": brief(loss.job.label),
        "verdict": loss.verdict.value,
        "noticed": loss.noticed_at,
        "ended": loss.ended_at,
        "outcome": loss.outcome.value,
        "tone": _TONES[loss.outcome],
        "again": loss.retried_as,
        "again_editor": n8n_cells.editor(n8n, loss.workflow, loss.retried_as) if loss.retried_as else "",
        "offer": offer.sentence,
        "copied": loss.copied_at,
        "acts": acts if can else None,
    }
