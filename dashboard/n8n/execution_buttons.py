"""Builds the buttons of n8n's table: for each mismatch the repair it is named with first, then what else is possible.

Some are for the job, some for the execution; which of the two a button acts on is in its title.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from django.urls import reverse
from django.utils.http import urlencode

from dashboard.actions import buttons
from dashboard.actions.action_request import MATCHING_EXECUTIONS, action_url
from dashboard.actions.buttons import ActionButtons, ActionPermissions, Button
from dashboard.base.job_rows import Cells
from dashboard.base.url_identifiers import job_url_ref
from dashboard.n8n import presenters as n8n_presenters
from dashboard.n8n.presenters import PairFilter
from recovery import config
from recovery.actions import catalog
from recovery.config import N8nInstallation
from recovery.domain.actions.types import Action
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.n8n.action_context import row_of
from recovery.domain.n8n.comparison import JobExecutionPair, N8nComparison
from recovery.domain.n8n.executions import ExecutionStatus
from recovery.domain.n8n.mismatches import MismatchKind, MismatchRepair
from recovery.domain.n8n.rescue import RescueOffer
from recovery.domain.stuck.types import StuckJob
from recovery.errors import ConfigError
from recovery.n8n import api_client, comparison_store
from recovery.n8n.job_execution import JobExecution

EXECUTION_ACTIONS = frozenset({Action.MARK, Action.RETRY_EXECUTION, Action.RESCUE})
_RETRIED = frozenset(
    {
        ExecutionStatus.NEW,  # once it is marked as crashed
        ExecutionStatus.RUNNING,
        ExecutionStatus.UNKNOWN,
        ExecutionStatus.ERROR,
        ExecutionStatus.CRASHED,
        ExecutionStatus.CANCELED,
        ExecutionStatus.FAILED,
    }
)


def buttons_for_pair(
    pair: JobExecutionPair,
    n8n: N8nInstallation | None,
    user: object,
    *,
    back: str,
    spread: int = 1,
    can_rescue: bool = False,
) -> ActionButtons | None:
    """Returns a mismatch's buttons; None if nothing is wrong or nothing is allowed. A possible rescue comes first."""
    if n8n is None:
        return None
    may = buttons.action_permissions(user, n8n.queue.deployment)
    return _offered(pair, n8n, may, back=back, spread=spread, can_rescue=can_rescue)


def _offered(
    pair: JobExecutionPair,
    n8n: N8nInstallation,
    may: ActionPermissions,
    *,
    back: str,
    spread: int = 1,
    can_rescue: bool = False,
) -> ActionButtons | None:
    if pair.finding is None or not may.act or buttons.is_read_only(n8n.queue):
        return None
    rescue = [Action.RESCUE] if can_rescue and not api_client.lacks(n8n) else []
    chosen = [act for act in (*rescue, *_acts(pair, n8n)) if may.do(act)]
    found = [one for act in chosen if (one := _button(act, pair, n8n, back))]
    if not found:
        return None
    first = replace(found[0], kind=found[0].kind or "primary")
    return ActionButtons(f"execution {pair.id}", (first, *found[1:spread]), tuple(found[spread:]))


def buttons_for_stuck_line(stuck: StuckJob, may: ActionPermissions, *, back: str) -> ActionButtons | None:
    """Returns the buttons of a mismatch among the stuck jobs: the same as in n8n's table, which it was taken from."""
    n8n, pair = config.current().n8n_of(stuck.job.queue), _pair(stuck)
    return _offered(pair, n8n, may, back=back) if n8n and pair else None


def links(stuck: StuckJob) -> Cells:
    """Returns links to the execution of a stuck job: in n8n's editor, and in n8n's table."""
    if not stuck.execution:
        return {}
    pair = _pair(stuck)
    workflow = pair.workflow if pair and pair.execution else ""
    return {
        "execution": stuck.execution,
        "execution_url": n8n_presenters.editor(config.current().n8n_of(stuck.job.queue), workflow, stuck.execution),
        "table_url": f"{reverse('n8n')}?{urlencode({'execution': stuck.execution})}",
    }


def _pair(stuck: StuckJob) -> JobExecutionPair | None:
    truth = comparison_store.fresh_comparison(stuck.job.queue)
    here = (pair for pair in (truth.pairs if truth else ()) if pair.id == stuck.execution)
    return next((pair for pair in here if not stuck.has_job or (pair.claim and pair.claim.job == stuck.job)), None)


def buttons_for_job_execution(
    found: JobExecution | None, offer: RescueOffer | None, user: object, *, back: str
) -> ActionButtons | None:
    """Returns the buttons for a job's execution, on the job's page, where those for the job itself stand above."""
    if found is None or found.execution is None or not buttons.action_permissions(user, found.n8n.queue.deployment).act:
        return None
    pair = found.pair or JobExecutionPair(found.id, None, found.execution)
    can_rescue = offer is not None and offer.is_open and not api_client.lacks(found.n8n)
    chosen = [Action.RESCUE] if can_rescue else []
    chosen += [Action.RETRY_EXECUTION] if _can_retry(pair, found.n8n) else []
    made = [one for act in chosen if (one := _button(act, pair, found.n8n, back))]
    return ActionButtons(f"execution {found.id}", tuple(made)) if made else None


def execution_url(ref: QueueRef, id: str = "") -> str:
    """Returns the URL of executions that stand in the audit as a queue of jobs; "" for any other queue."""
    try:
        if config.current().n8n_with(ref) is None:
            return ""
    except ConfigError:
        return ""
    return reverse("n8n") + (f"?{urlencode({'execution': id})}" if id else "")


def checkbox_value(pair: JobExecutionPair, n8n: N8nInstallation | None, user: object) -> str:
    """Returns the check box value of an execution; "" if this user can do nothing to several at once."""
    if n8n is None or not execution_actions(pair, n8n):
        return ""
    may = buttons.action_permissions(user, n8n.queue.deployment)
    is_allowed = any(may.do(act, many=True) for act in execution_actions(pair, n8n))
    return job_url_ref(n8n.executions.job(pair.id)) if is_allowed else ""


def buttons_for_matching(
    pairs: Iterable[tuple[N8nComparison, JobExecutionPair]],
    known: Mapping[str, N8nInstallation],
    chosen: PairFilter,
    user: object,
    *,
    back: str,
) -> tuple[Button, ...]:
    """Returns the buttons for all of these at once: each action with how many of them it fits."""
    counts: Counter[Action] = Counter()
    for truth, pair in pairs:
        n8n = known.get(truth.name)
        if n8n is not None:
            may = buttons.action_permissions(user, n8n.queue.deployment)
            counts.update(act for act in execution_actions(pair, n8n) if may.do(act, many=True))
    return tuple(_matching_button(act, counts[act], chosen, back) for act in MATCHING_EXECUTIONS if counts[act] > 1)


def _matching_button(act: Action, count: int, chosen: PairFilter, back: str) -> Button:
    entry = catalog.ENTRIES[act]
    words = f"{entry.label} {entry.counted(count)}"
    kind = "danger" if entry.tone == "danger" else ""
    return Button(f"do-{act}-matching", f"{words}…", action_url(act, matching=chosen, back=back), kind, words)


def execution_actions(pair: JobExecutionPair, n8n: N8nInstallation) -> frozenset[Action]:
    """Returns the actions on the execution itself that fit this mismatch: those that can be done to many at once."""
    if pair.finding is None or pair.execution is None:
        return frozenset()
    return EXECUTION_ACTIONS & frozenset(_acts(pair, n8n))


def _acts(pair: JobExecutionPair, n8n: N8nInstallation) -> list[Action]:
    again = [Action.RETRY_EXECUTION] if _can_retry(pair, n8n) else []
    marks = [Action.MARK] if _can_mark(n8n) else []
    is_held = pair.claim is not None and pair.claim.is_locked
    is_delayed = pair.claim is not None and pair.claim.state is JobState.DELAYED
    is_fresh = pair.finding is not None and pair.finding.repair is MismatchRepair.REQUEUE
    of_kind: dict[MismatchKind | None, list[Action]] = {
        MismatchKind.ORPHANED: [Action.REQUEUE, Action.FAIL] if is_fresh else [Action.FAIL, *again, Action.REQUEUE],
        MismatchKind.NO_JOB: [*marks, *again],
        MismatchKind.DEAD_PARENT: [*marks, *again],
        MismatchKind.UNSEEN: [Action.CANCEL],
        MismatchKind.LEFT: [] if is_held else [Action.REMOVE, *again],
        MismatchKind.DELETED: [Action.CANCEL if is_held else Action.REMOVE],
        MismatchKind.PAUSED: [] if is_delayed else [Action.RESUME],
    }
    return of_kind.get(pair.finding.kind if pair.finding else None, [])


def _can_retry(pair: JobExecutionPair, n8n: N8nInstallation) -> bool:
    """Returns True if n8n can retry it, as far as it is known without asking; the dialog checks more."""
    is_retried = pair.execution is not None and pair.execution.is_there and pair.execution.status in _RETRIED
    return is_retried and bool(n8n.database) and not api_client.lacks(n8n)


def _can_mark(n8n: N8nInstallation) -> bool:
    return any(one.name == n8n.database and not one.read_only for one in config.current().databases)


def _button(act: Action, pair: JobExecutionPair, n8n: N8nInstallation, back: str) -> Button | None:
    if act is Action.RESUME:
        return buttons.queue_button(act, pair.claim.job.queue, back) if pair.claim else None
    if act in EXECUTION_ACTIONS:
        made = buttons.job_button(act, row_of(n8n.executions, pair.execution).ref, back) if pair.execution else None
        return replace(made, title=f"{catalog.ENTRIES[act].label} execution {pair.id}") if made else None
    return buttons.job_button(act, pair.claim.job, back) if pair.claim else None
