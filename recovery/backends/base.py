"""Contract of a backend: plans that the snapshot can batch, and reads of one queue.

A backend never opens a connection of its own: it is given one, and it says beforehand what it will ask.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from recovery.domain.actions.types import (
    Action,
    ActionEffects,
    ActionOptions,
    ExpectedJob,
    RemovalStep,
    ScriptOutcome,
    UndoCopy,
)
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import Job, JobFamily, JobRow, JobRowPage, JobSearchSlice, JobState, LogPage, SchedulerRow
from recovery.domain.queues.types import LibraryVersion, QueueSample

Command = tuple[bytes | str | int, ...]
Replies = Sequence[Any]  # one entry a command; a refused command is an exception *in* the list

LIST_LIMIT = 100  # rows a page at most: what a person can look through
TEXT_LIMIT = 64 * 1024  # bytes of one payload before "load all"
LOAD_LIMIT = 8 * 1024 * 1024  # bytes of "load all": a browser tab still holds that
LINE_LIMIT = 300  # characters of a one-line summary
CHILD_LIMIT = 100  # relatives listed on a job page
ACTIVE_CHUNK = 50  # jobs taken out of `active` by one script: about 1 ms, in which no other client is served
MOVE_CHUNK = 500  # jobs of one call where none is taken away: several scripts, sent together
READ_LIMIT = MOVE_CHUNK  # rows a page at most for a bulk run, which does as many at once


@dataclass(frozen=True, slots=True)
class Capabilities:
    """Features of one flavour and version; the pages ask this, never the class."""

    states: tuple[JobState, ...]  # the tabs, in the order a person reads them
    schedulers: bool
    families: bool
    metrics: bool
    names_workers: bool  # `pb`
    global_concurrency: bool
    global_limit: bool


class CommandClient(Protocol):
    """Sends a batch to wherever the keys live (single, Sentinel, Cluster) in one round trip a node."""

    def call(self, commands: Sequence[Command]) -> list[Any]:
        """Returns the replies in order. A command's own error is in the list; a dead store raises StoreError."""


class QueueReader(Protocol):
    """Reads queues of one library. Stateless: everything it needs comes in as arguments."""

    def capabilities(self, flavour: LibraryVersion) -> Capabilities: ...

    # -- the snapshot: two plans a queue, batched over all queues by the collector

    def sample_plan(self, ref: QueueRef) -> tuple[Command, ...]:
        """Returns the commands of each snapshot. Fixed for a queue, so that the request is encoded once and kept."""

    def sample(
        self, ref: QueueRef, flavour: LibraryVersion, replies: Replies, now: int
    ) -> tuple[QueueSample, tuple[str, str]]:
        """Returns the sample, and the ids (oldest waiting, oldest active) whose times are to be asked; "" for none."""

    def age_plan(self, ref: QueueRef, id: str) -> Command:
        """Returns the command that reads a job's times: (timestamp, processedOn, delay)."""

    # -- one queue

    def page(
        self,
        wire: CommandClient,
        ref: QueueRef,
        state: JobState,
        *,
        cursor: str = "",
        size: int = 25,
        oldest_first: bool | None = None,
        by_script: bool = False,
    ) -> JobRowPage:
        """Reads one page of a state. `oldest_first` None: the order a person expects of that state.

        That is newest first for finished jobs, oldest first for active ones, next to run first for the others.
        `by_script`: for actions, which may run scripts; each job is then read at one moment. Raises StoreError when
        the store refuses the list: it is not known to be empty.
        """

    def following(
        self, wire: CommandClient, ref: QueueRef, wanted: Sequence[tuple[str, JobState]]
    ) -> FollowUpRead | None:
        """Returns a wire that reads these jobs behind each script of an action; None: this library has no such read."""

    def row(self, wire: CommandClient, ref: QueueRef, id: str) -> JobRow:
        """Reads one job's row with its true state; raises JobMissing."""

    def rows(
        self, wire: CommandClient, ref: QueueRef, wanted: Sequence[tuple[str, JobState]], *, by_script: bool = False
    ) -> tuple[JobRow | None, ...]:
        """Reads many jobs again, each first in the state in which it was shown last. None: it is gone.

        One that moved has its true state, or UNKNOWN when very many moved at once. `by_script`: for actions, which
        may run scripts; a few jobs then take one round trip.
        """

    def job(self, wire: CommandClient, ref: QueueRef, id: str, *, limit: int = TEXT_LIMIT) -> Job:
        """Reads one job in full; raises JobMissing."""

    def logs(self, wire: CommandClient, ref: QueueRef, id: str, *, start: int = 0, size: int = 200) -> LogPage: ...

    def family(self, wire: CommandClient, ref: QueueRef, id: str) -> JobFamily: ...

    def schedulers(self, wire: CommandClient, ref: QueueRef, *, size: int = 100) -> tuple[SchedulerRow, ...]: ...

    def metrics(
        self, wire: CommandClient, ref: QueueRef, now: int, *, minutes: int
    ) -> tuple[tuple[int | None, ...], tuple[int | None, ...]] | None:
        """Reads completed and failed jobs per minute, newest first; index 0 is the newest *closed* minute.

        None: the workers keep no metrics.
        """

    def search(
        self,
        wire: CommandClient,
        ref: QueueRef,
        state: JobState,
        *,
        name: str = "",
        data: str = "",
        cursor: str = "",
        budget: int = 1000,
    ) -> JobSearchSlice:
        """Searches one bounded slice: at most `budget` jobs are looked at; payloads are compared in the client."""


class FollowUpRead(CommandClient, Protocol):
    """Wire that sends a read of some jobs behind each script, in the same round trip."""

    def rows(self) -> Mapping[str, JobRow | None]:
        """Returns the jobs as the newest script left them; None: it is gone. Empty when nothing is known of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """Queue to be changed: where it lives, what it is called, which library keeps it."""

    wire: CommandClient
    ref: QueueRef
    flavour: LibraryVersion
    epoch: int | None = None  # scripts refuse one that is older than the newest they have met; None asks nothing
    installation: str = ""  # whose epoch it is: while another one holds the queue, scripts refuse it as well
    following: FollowUpRead | None = None  # reads that go out behind each script

    @property
    def script_wire(self) -> CommandClient:
        """Wire to which the scripts that write are sent."""
        return self.following or self.wire


class QueueOperator(Protocol):
    """Changes queues of one library. Each call is one atomic script, which re-checks what was seen before it writes.

    Only `recovery.actions` calls this: permission, dry run, confirmation and audit come first.
    """

    def refusals(self, flavour: LibraryVersion) -> Mapping[Action, str]:
        """Returns the acts that cannot be done to a queue of this flavour, each with its reason. All others can."""

    def chunk(self, act: Action) -> int:
        """Returns how many jobs one call of `on_jobs` takes at most."""

    def effects(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions
    ) -> Mapping[str, ActionEffects]:
        """Returns what the act would do to other jobs, children and parents, by the id of the job that it is done to.

        Only those that point back count: a child that names the job as its parent and is written down with it. Reads
        only; raises StoreError.
        """

    def on_jobs(
        self, act: Action, target: Target, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
    ) -> tuple[ScriptOutcome, ...]:
        """Requeues, fails, releases, retries, promotes, removes or cancels jobs; one answer a job, in their order.

        A job that moved since it was seen is refused with its present state, one whose script met a later epoch than
        the target's is refused and says so (`ScriptOutcome.fenced`). Raises StoreError if the store does not answer:
        then the script may have run or not.
        """

    def on_queue(self, act: Action, target: Target, options: ActionOptions, now: int) -> ScriptOutcome:
        """Pauses or resumes a queue. `ScriptOutcome.id` is "". Raises Fenced."""

    def take_away(self, act: Action, target: Target, options: ActionOptions, now: int, *, budget: int) -> RemovalStep:
        """Does one bounded step of a clean or a drain, at most `budget` jobs; to be called until it is finished.

        A later epoch that a script meets ends it (`RemovalStep.fenced`); what went before is told all the same.
        """

    def put_back(self, target: Target, kept: UndoCopy, now: int) -> ScriptOutcome:
        """Restores a removed job to its place; refused when its id is in use again. Raises Fenced."""

    def fence(self, target: Target) -> None:
        """Raises the fence: scripts of an earlier epoch are refused from now on. Raises Fenced for a later one."""
