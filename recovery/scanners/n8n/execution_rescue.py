"""Rescues lost executions of workflows whose steps may run twice and whose configuration asks for it (`automatic`).

The rescue is the action that an operator has, with its rules and its audit: the worker has to be proven to be gone, and
each execution runs again once. An execution that is a retry itself is left to people: what it does may be what killed
its workers. It runs beside the copies, because n8n may take seconds to answer.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from recovery.actions import runner
from recovery.actions.audit.audit_log import REASON_LIMIT
from recovery.config import N8nInstallation
from recovery.domain.actions.types import Action, ActionCommand, Actor, JobResult, Outcome
from recovery.domain.n8n.lost_executions import LostExecutionOutcome, LostExecutionRecord
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.domain.time_units import MINUTE, SECOND
from recovery.errors import UnstallError
from recovery.n8n import lost_executions
from recovery.stores.registry import ConnectionRegistry

EVERY = 2.0  # seconds: n8n overwrites the data within tens of them
AT_ONCE = 20  # executions of one run: each takes n8n some hundred milliseconds
ATTEMPTS = 3  # of one execution by one leader: what n8n refuses so often is for people
_BETWEEN = 10 * SECOND  # two attempts
_LOST_FOR = 10 * MINUTE  # since n8n ended it: what a former leader left, and no older history
_RETRY = "retry"
_ACTOR = Actor("scanner", "execution-rescue", may_act=True, may_bulk=True)

log = logging.getLogger(__name__)


class ExecutionRescue:
    """Rescues lost executions for the leader. For one thread at a time."""

    def __init__(self, registry: ConnectionRegistry, leader_token: LeaderToken) -> None:
        self._registry = registry
        self._leader_token = leader_token
        self._tried: dict[int, tuple[int, int]] = {}  # by the number of the loss: how often, and when last

    def run(self, now: int) -> None:
        """Rescues what is due on each n8n that is configured for it. Raises Error of the own database."""
        self._tried = {number: tried for number, tried in self._tried.items() if now - tried[1] < _LOST_FOR}
        for n8n in self._registry.config.n8n:
            if n8n.automatic and not self._leader_token.rival(n8n.queue.deployment):
                self._rescue(n8n, now)

    def _rescue(self, n8n: N8nInstallation, now: int) -> None:
        """Rescues one execution after the other; each is checked right before, as a worker may hold it again."""
        for loss in list(self._due(n8n, now))[:AT_ONCE]:
            if not self._leader_token.holds():
                return
            attempts = self._tried.get(loss.number, (0, 0))[0]
            self._tried[loss.number] = attempts + 1, now
            try:
                self._tell(n8n, self._carry_out(n8n, loss))
            except UnstallError as error:
                log.warning("%s: execution %s is not rescued: %s", n8n.name, loss.execution, error)
                return

    def _carry_out(self, n8n: N8nInstallation, loss: LostExecutionRecord) -> tuple[JobResult, ...]:
        seen = runner.current_jobs(n8n.executions, (loss.execution,))
        reason = (
            f"lost by {loss.worker or 'its worker'}; its workflow may be run twice: {n8n.idempotent[loss.workflow]}"
        )
        order = ActionCommand(
            Action.RESCUE,
            n8n.executions,
            _ACTOR,
            reason[:REASON_LIMIT],
            seen,
            epoch=self._leader_token.epoch,
            installation=self._leader_token.installation,
        )
        return runner.perform(order)

    def _due(self, n8n: N8nInstallation, now: int) -> Iterator[LostExecutionRecord]:
        """Yields the losses to be rescued now, oldest first: n8n overwrites or deletes those first."""
        at_risk = lost_executions.newest(n8n.name, outcome=LostExecutionOutcome.AT_RISK)
        lost = lost_executions.newest(n8n.name, outcome=LostExecutionOutcome.LOST)
        for loss in sorted((*at_risk, *lost), key=lambda loss: loss.noticed_at):
            is_ours = loss.workflow in n8n.automatic and loss.mode != _RETRY
            is_late = loss.ended_at is not None and now - loss.ended_at > _LOST_FOR
            attempts, last = self._tried.get(loss.number, (0, 0))
            is_due = attempts < ATTEMPTS and now - last >= _BETWEEN
            if (
                is_ours
                and is_due
                and loss.is_proven
                and not is_late
                and lost_executions.offered(loss, n8n, now).is_open
            ):
                yield loss

    def _tell(self, n8n: N8nInstallation, results: tuple[JobResult, ...]) -> None:
        for result in results:
            level = logging.INFO if result.outcome is Outcome.DONE else logging.WARNING
            log.log(level, "%s: rescue of execution %s: %s. %s", n8n.name, result.job, result.outcome, result.why)
