"""An execution as n8n's database has it: never its data, only how it stands and since when."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ExecutionStatus(StrEnum):
    """In n8n's own words, from 1.0 to 2.x. STRANGE: a word that a newer n8n made up, of which nothing is said."""

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
        """It has not ended."""
        return self in OPEN

    @property
    def is_going(self) -> bool:
        """It has not ended, and is not parked either: somebody has to run it."""
        return self in GOING

    @property
    def is_terminal(self) -> bool:
        return not self.is_open and self is not ExecutionStatus.STRANGE


OPEN = (ExecutionStatus.NEW, ExecutionStatus.RUNNING, ExecutionStatus.WAITING, ExecutionStatus.UNKNOWN)
GOING = (ExecutionStatus.NEW, ExecutionStatus.RUNNING, ExecutionStatus.UNKNOWN)
# Ends that n8n, or its recovery, writes for an execution whose worker was lost. One that a person canceled is none.
LOST_ENDS = (ExecutionStatus.ERROR, ExecutionStatus.CRASHED, ExecutionStatus.FAILED)
# What main hands over to workers. Others run where they are begun: `manual` in main (unless it is told to hand these
# over too), `integrated` beside their parent, `cli` in a process of their own.
QUEUED_MODES = frozenset({"webhook", "trigger", "retry", "error", "evaluation", "chat"})
SUB_WORKFLOW = "integrated"


@dataclass(frozen=True, slots=True)
class Execution:
    """Times are ms since 1970. `id` is a number, written as jobs write it."""

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
        """Since when it is as good as running."""
        return self.started_at if self.started_at is not None else self.created_at

    @property
    def has_begun(self) -> bool:
        """A worker writes `running` and the time before it runs the first step. Before 1.64 every row has a time."""
        return self.status is not ExecutionStatus.NEW or self.created_at is None or self.started_at is not None

    @property
    def is_sub_workflow(self) -> bool:
        return self.mode == SUB_WORKFLOW

    @property
    def has_a_job(self) -> bool:
        """By its mode it is run by a worker, so it should have one while it is going."""
        return self.mode in QUEUED_MODES


def status(written: str | None, *, is_finished: bool, has_stopped: bool) -> ExecutionStatus:
    """The oldest rows have none: n8n itself goes by whether they finished."""
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
