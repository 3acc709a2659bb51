"""State of an execution and its jobs that decides whether an action on them is allowed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.n8n.executions import Execution, ExecutionStatus
from recovery.domain.n8n.jobs import N8nJob
from recovery.domain.n8n.rescue import RescueContext
from recovery.domain.n8n.worker_ages import WorkerAges

_STATES = {
    ExecutionStatus.NEW: JobState.WAITING,
    ExecutionStatus.RUNNING: JobState.ACTIVE,
    ExecutionStatus.UNKNOWN: JobState.ACTIVE,
    ExecutionStatus.WAITING: JobState.DELAYED,
    ExecutionStatus.SUCCESS: JobState.COMPLETED,
    ExecutionStatus.WARNING: JobState.COMPLETED,
    ExecutionStatus.STRANGE: JobState.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class ExecutionActionContext:
    """State of an execution before an action. `silence`: why n8n's database could not be read; "" when it was.
    `is_configured`: n8n has a database in the configuration.

    The rest is for actions on the execution itself. `claims` None: not all of n8n's jobs could be read.
    `is_proven`: every active one among them is proven to have no worker. `alone_for`: how many ms ago it was first seen
    without a job. `has_start` None: whether n8n has kept anything that could run is unknown.
    """

    id: str
    execution: Execution | None = None
    is_configured: bool = True
    silence: str = ""
    claims: tuple[N8nJob, ...] | None = ()
    is_proven: bool = False
    alone_for: int = 0
    has_start: bool | None = None
    retried_as: str = ""  # the newest execution that is a retry of it, as far as one was looked for
    workers: WorkerAges = field(default_factory=WorkerAges)
    is_listed: bool = False  # the newest comparison suggests this repair for it
    fixed: str = ""  # why nothing may be written into n8n's database
    no_api: str = ""  # why n8n's public API cannot be asked
    rescue: RescueContext | None = None  # only where a rescue is asked for

    @property
    def is_known(self) -> bool:
        return self.is_configured and not self.silence

    @property
    def status(self) -> ExecutionStatus:
        return self.execution.status if self.execution else ExecutionStatus.UNKNOWN

    @property
    def is_there(self) -> bool:
        return self.execution is not None and self.execution.is_there

    def as_record(self) -> dict[str, Any]:
        """Returns what the audit records of the execution."""
        told: dict[str, Any] = {"execution": self.id}
        if self.execution:
            told |= {"status": self.status.value, "mode": self.execution.mode, "workflow": self.execution.workflow}
        told |= {"silence": self.silence} if self.silence else {}
        return told | (self.rescue.as_record() if self.rescue else {})


def row_of(ref: QueueRef, execution: Execution) -> JobRow:
    """Returns an execution as a job row, to be compared with what the operator was shown."""
    return JobRow(
        ref=ref.job(execution.id),
        state=state_of(execution.status),
        name=execution.workflow,
        added_at=execution.created_at,
        processed_at=execution.started_at,
        finished_at=execution.stopped_at,
    )


def state_of(status: ExecutionStatus) -> JobState:
    return _STATES.get(status, JobState.FAILED)
