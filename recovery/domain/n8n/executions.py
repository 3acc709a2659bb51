"""An execution as a row of n8n's database: its status, mode and times, never its data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ExecutionStatus(StrEnum):
    """Status of an execution in n8n's own words, from 1.0 to 2.x. STRANGE: a word of a newer n8n; nothing is concluded
    from it.
    """

    NEW = "new"
    RUNNING = "running"
    WAITING = "waiting"  # parked until a time or a call; it needs no job meanwhile
    UNKNOWN = "unknown"
    SUCCESS = "success"
    ERROR = "error"
    CRASHED = "crashed"
    CANCELED = "canceled"
    FAILED = "failed"  # of the first versions: as error
    WARNING = "warning"
    STRANGE = "strange"

    @property
    def is_open(self) -> bool:
        """Returns True if the execution has not ended."""
        return self in OPEN

    @property
    def is_going(self) -> bool:
        """Returns True if the execution has not ended and is not parked either: some process has to run it."""
        return self in GOING

    @property
    def is_terminal(self) -> bool:
        return not self.is_open and self is not ExecutionStatus.STRANGE


OPEN = (ExecutionStatus.NEW, ExecutionStatus.RUNNING, ExecutionStatus.WAITING, ExecutionStatus.UNKNOWN)
GOING = (ExecutionStatus.NEW, ExecutionStatus.RUNNING, ExecutionStatus.UNKNOWN)
# Ends that n8n, or its recovery, writes for an execution whose worker was lost. One that a person canceled is none.
LOST_ENDS = (ExecutionStatus.ERROR, ExecutionStatus.CRASHED, ExecutionStatus.FAILED)
# Modes that main hands over to workers. Others run where they are started: `manual` in main (unless it is configured
# to hand these over too), `integrated` in their parent's process, `cli` in a process of their own.
QUEUED_MODES = frozenset({"webhook", "trigger", "retry", "error", "evaluation", "chat"})
SUB_WORKFLOW = "integrated"


@dataclass(frozen=True, slots=True)
class Execution:
    """An execution of n8n. `id` is a number, written as jobs write it. Times are ms since 1970."""

    id: str
    workflow: str
    mode: str
    status: ExecutionStatus
    created_at: int | None = None  # None before n8n 1.64: then it began when it was made
    started_at: int | None = None
    stopped_at: int | None = None
    wait_until: int | None = None
    retry_of: str = ""
    is_deleted: bool = False  # as n8n deletes: the row stays for a while

    @property
    def is_there(self) -> bool:
        return not self.is_deleted

    @property
    def began_at(self) -> int | None:
        """Time from which the execution counts as running."""
        return self.started_at if self.started_at is not None else self.created_at

    @property
    def has_begun(self) -> bool:
        """Returns True if a worker has begun to run the execution: it writes `running` and the time before the first
        step. Before 1.64 every row has a time.
        """
        return self.status is not ExecutionStatus.NEW or self.created_at is None or self.started_at is not None

    @property
    def is_sub_workflow(self) -> bool:
        return self.mode == SUB_WORKFLOW

    @property
    def has_a_job(self) -> bool:
        """Returns True if a worker runs executions of this mode, so that this one should have a job until it ends."""
        return self.mode in QUEUED_MODES


def status(written: str | None, *, is_finished: bool, has_stopped: bool) -> ExecutionStatus:
    """Returns the status of a row. The oldest rows have none: n8n itself goes by whether they finished."""
    if written is None:
        return (
            ExecutionStatus.SUCCESS
            if is_finished
            else ExecutionStatus.ERROR
            if has_stopped
            else ExecutionStatus.UNKNOWN
        )
    return _KNOWN.get(written, ExecutionStatus.STRANGE)


_KNOWN = {one.value: one for one in ExecutionStatus if one is not ExecutionStatus.STRANGE}
