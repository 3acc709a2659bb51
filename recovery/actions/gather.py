"""Which jobs are meant by "all": those of one state up to a fixed moment, and what else is asked of them.

They are gathered in the order of their list, the oldest first: a script then finds each at once, and what an act
sends back to the same state is younger than the moment, so that it is not taken again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace

from recovery.actions import sight
from recovery.backends.base import LIST_LIMIT
from recovery.domain.acting import Options, Seen
from recovery.domain.counts import Library
from recovery.domain.jobs import JobRow, State
from recovery.domain.signatures import signature
from recovery.domain.verdicts import Kind, Verdict
from recovery.errors import BadOrder, Unsupported
from recovery.reads import stuck

ONE_BY_ONE = "Executions of n8n are named one by one: there is no list of them here."


@dataclass(frozen=True, slots=True)
class Selection:
    """`until` in ms. `error` is a signature, `verdict` a kind; the orphans are those that are abandoned, too."""

    state: State
    until: int
    name: str = ""
    error: str = ""
    verdict: Kind | None = None

    @classmethod
    def all(cls, written: str, until: int, *, name: str = "", error: str = "") -> Selection:
        """`failed` means a state, `orphan` means a verdict."""
        if written in set(State) - {State.UNKNOWN}:
            return cls(State(written), until, name, error)
        if written in set(Kind) - {Kind.UNKNOWN}:
            return cls(State.ACTIVE, until, name, error, Kind(written))
        raise BadOrder(f"{written!r} is neither a state nor a verdict.")

    def implied(self, options: Options) -> Options:
        """Who names completed jobs means them: a retry of all of them needs no second word."""
        return replace(options, rerun_completed=True) if self.state is State.COMPLETED else options

    def as_json(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of_json(cls, found: dict[str, str | int | None]) -> Selection:
        verdict = found["verdict"]
        return cls(
            State(str(found["state"])),
            int(found["until"] or 0),
            str(found["name"]),
            str(found["error"]),
            Kind(str(verdict)) if verdict else None,
        )


@dataclass(frozen=True, slots=True)
class Part:
    """Some of them; `next` "" at the end."""

    jobs: tuple[Seen, ...]
    next: str = ""


def part(scene: sight.Scene, selection: Selection, cursor: str = "") -> Part:
    """The next window. Raises StoreError, Unsupported."""
    queue = scene.queue
    if queue.flavour.library is Library.N8N:
        raise Unsupported(ONE_BY_ONE)
    page = queue.reader.page(queue.wire, queue.ref, selection.state, cursor=cursor, size=LIST_LIMIT, oldest_first=True)
    verdicts = _verdicts(scene, selection, page.rows)
    return Part(tuple(Seen.of(row) for row in page.rows if _is_meant(selection, row, verdicts.get(row.id))), page.next)


def every(scene: sight.Scene, selection: Selection) -> Iterator[Seen]:
    """All of them, each once: a list that moves meanwhile may show one twice."""
    known: set[str] = set()
    cursor = ""
    while True:
        found = part(scene, selection, cursor)
        for seen in found.jobs:
            if seen.id not in known:
                known.add(seen.id)
                yield seen
        if not found.next:
            return
        cursor = found.next


def _verdicts(scene: sight.Scene, selection: Selection, rows: Sequence[JobRow]) -> dict[str, Verdict]:
    if selection.verdict is None or not rows:
        return {}
    return dict(stuck.of_rows(scene.queue, tuple(rows), scene.snapshot, sight.now()))


def _is_meant(selection: Selection, row: JobRow, verdict: Verdict | None) -> bool:
    if _since(row) > selection.until:
        return False
    if selection.name and row.name != selection.name:
        return False
    if selection.error and signature(row.reason) != selection.error:
        return False
    return selection.verdict is None or _has(selection.verdict, verdict)


def _has(kind: Kind, verdict: Verdict | None) -> bool:
    if verdict is None:
        return False
    return verdict.kind.is_orphaned if kind is Kind.ORPHAN else verdict.kind is kind


def _since(row: JobRow) -> int:
    """Since when it has been where it is, as far as it tells; 0 when it does not."""
    if row.state.is_finished:
        return row.finished_at or 0
    if row.state is State.ACTIVE:
        return row.processed_at or 0
    return row.added_at or 0
