"""Selects the jobs that "all" means: those of one state up to a fixed moment, with the name or error that is asked for.

They are read in the order of their list, the oldest first: a script then finds each at once, and a job that an action
sends back to the same state is younger than the moment, so that it is not taken again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from recovery.actions import precheck
from recovery.backends.base import LIST_LIMIT
from recovery.backends.redis_common.paging import cursors
from recovery.domain.actions.types import ActionOptions, ExpectedJob
from recovery.domain.auto_retry.error_signatures import safe_signature, signature
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.stuck.types import Verdict, VerdictKind
from recovery.errors import BadOrder, Unsupported
from recovery.reads.stuck import queries as stuck_queries

ONE_BY_ONE = "n8n executions must be listed one by one: they cannot be selected here."


@dataclass(frozen=True, slots=True)
class BulkSelection:
    """Jobs of a bulk run. `until` in ms; `error` is a signature, `verdict` a kind; orphans include abandoned jobs."""

    state: JobState
    until: int
    name: str = ""
    error: str = ""
    verdict: VerdictKind | None = None

    @classmethod
    def all(cls, written: str, until: int, *, name: str = "", error: str = "") -> BulkSelection:
        """Reads what was written as a state (`failed`) or as a verdict (`orphan`). Raises BadOrder."""
        if written in set(JobState) - {JobState.UNKNOWN}:
            return cls(JobState(written), until, name, error)
        if written in set(VerdictKind) - {VerdictKind.UNKNOWN}:
            return cls(JobState.ACTIVE, until, name, error, VerdictKind(written))
        raise BadOrder(f"{written!r} is not a state or a verdict.")

    def implied(self, options: ActionOptions) -> ActionOptions:
        """Adds consent to rerun when completed jobs are selected: naming them is consent enough."""
        return replace(options, rerun_completed=True) if self.state is JobState.COMPLETED else options

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of_json(cls, found: dict[str, str | int | None]) -> BulkSelection:
        verdict = found["verdict"]
        return cls(
            JobState(str(found["state"])),
            int(found["until"] or 0),
            str(found["name"]),
            str(found["error"]),
            VerdictKind(str(verdict)) if verdict else None,
        )


@dataclass(frozen=True, slots=True)
class SelectionPage:
    """A window of the selected jobs; `next` is "" at the end."""

    rows: tuple[JobRow, ...]
    next: str = ""
    total: int | None = None  # jobs in the state, meant or not
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)  # when they are asked for
    ids: tuple[str, ...] = ()  # of the window, meant or not
    cursor: str = ""  # where it began

    def next_without(self, gone: Collection[str]) -> str:
        """Returns where the next window begins when these jobs have left the list."""
        last = next((id for id in reversed(self.ids) if id not in gone), "")
        return cursors.after_removal(self.cursor, self.next, len(gone), last)


def read_page(
    context: precheck.ActionContext,
    selection: BulkSelection,
    cursor: str = "",
    size: int = LIST_LIMIT,
    *,
    insists: bool = False,
) -> SelectionPage:
    """Reads the next window. `insists`: the caller will act on it. Raises StoreError, Unsupported, NotRecorded."""
    queue = context.queue
    if queue.flavour.library is QueueLibrary.N8N:
        raise Unsupported(ONE_BY_ONE)
    page = queue.reader.page(
        queue.wire, queue.ref, selection.state, cursor=cursor, size=size, oldest_first=True, by_script=insists
    )
    verdicts = _verdicts(context, selection, page.rows, insists=insists)
    rows = tuple(row for row in page.rows if _is_meant(selection, row, verdicts.get(row.id)))
    return SelectionPage(rows, page.next, page.total, verdicts, tuple(row.id for row in page.rows), cursor)


def expected_count(context: precheck.ActionContext, selection: BulkSelection, total: int | None) -> int | None:
    """Returns about how many jobs are meant, of so many in the state; None: it takes a look at each."""
    if selection.name or selection.error:
        return None
    return total if selection.verdict is None else stuck_queries.count(context.queue.ref, selection.verdict)


def iterate_jobs(context: precheck.ActionContext, selection: BulkSelection) -> Iterator[ExpectedJob]:
    """Yields all selected jobs, each once: a list that changes meanwhile may show one twice."""
    known: set[str] = set()
    cursor = ""
    while True:
        found = read_page(context, selection, cursor)
        for seen in map(ExpectedJob.of, found.rows):
            if seen.id not in known:
                known.add(seen.id)
                yield seen
        if not found.next:
            return
        cursor = found.next


def _verdicts(
    context: precheck.ActionContext, selection: BulkSelection, rows: Sequence[JobRow], *, insists: bool
) -> Mapping[str, Verdict]:
    if selection.verdict is None or not rows:
        return {}
    return dict(
        stuck_queries.verdicts_of_rows(context.queue, tuple(rows), context.snapshot, precheck.now(), insists=insists)
    )


def _has_error(row: JobRow, wanted: str) -> bool:
    """Tells whether the job failed with this signature, as pages show it or as the library wrote it."""
    return signature(row.reason) == wanted or safe_signature(row.reason) == wanted


def _is_meant(selection: BulkSelection, row: JobRow, verdict: Verdict | None) -> bool:
    if _since(row) > selection.until:
        return False
    if selection.name and row.name != selection.name:
        return False
    if selection.error and not _has_error(row, selection.error):
        return False
    return selection.verdict is None or _has(selection.verdict, verdict)


def _has(kind: VerdictKind, verdict: Verdict | None) -> bool:
    if verdict is None:
        return False
    return verdict.kind.is_orphaned if kind is VerdictKind.ORPHAN else verdict.kind is kind


def _since(row: JobRow) -> int:
    """Returns since when the job has been in its state, as far as it tells; 0 when it does not."""
    if row.state.is_finished:
        return row.finished_at or 0
    if row.state is JobState.ACTIVE:
        return row.processed_at or 0
    return row.added_at or 0
