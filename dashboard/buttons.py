"""Builds the action buttons that a user gets: what fits the job or queue, its library, and the user's role.

Each leads to the dialog (a page without scripts), where the engine checks again; hiding one is a convenience, no guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from dashboard.access import rights_of
from dashboard.inbox import Filter
from dashboard.rows import ID_LIMIT
from dashboard.wishes import MATCHING, address
from recovery import config
from recovery.actions import catalog, operators
from recovery.domain.acting import Act, Right
from recovery.domain.counts import Flavour
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import JobRef, QueueRef
from recovery.domain.verdicts import Kind, Stuck, Verdict
from recovery.reads import refusals, stuck
from recovery.reads.lists import Queue, count_of


@dataclass(frozen=True, slots=True)
class Button:
    """One button. `title` is its full name for screen readers, which may read it without its row."""

    id: str
    label: str
    url: str
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class Acts:
    """Buttons of one job or queue: `first` stand in the row, `more` in its menu."""

    of: str
    first: tuple[Button, ...] = ()
    more: tuple[Button, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.first or self.more)


@dataclass(frozen=True, slots=True)
class May:
    """Rights of one user in one deployment."""

    rights: frozenset[Right] = frozenset()

    @property
    def act(self) -> bool:
        return Right.ACT in self.rights

    @property
    def bulk(self) -> bool:
        return Right.BULK in self.rights

    def do(self, act: Act, *, many: bool = False) -> bool:
        return catalog.ENTRIES[act].right(many=many) in self.rights


# Bulk actions for all jobs of a list; the first one is what users most often come to that list for.
_EVERY = {
    State.FAILED: (Act.RETRY, Act.REMOVE),
    State.COMPLETED: (Act.REMOVE, Act.RETRY),
    State.DELAYED: (Act.PROMOTE, Act.REMOVE),
    State.WAITING: (Act.REMOVE,),
    State.PRIORITIZED: (Act.REMOVE,),
    State.PAUSED: (Act.REMOVE,),
    State.WAITING_CHILDREN: (Act.REMOVE,),
    State.ACTIVE: (Act.REQUEUE, Act.FAIL),
}


def may(user: object, deployment: str = "") -> May:
    """Returns the user's rights; none in a read-only deployment. "": in whatever deployment."""
    if deployment in _read_only():
        return May()
    return May(rights_of(user))


def is_read_only(ref: QueueRef) -> bool:
    """Returns True if its deployment is read-only, by configuration or by its Redis user's rights."""
    return ref.deployment in _read_only()


def _read_only() -> frozenset[str]:
    found = refusals.newest()
    places = config.current().places
    return frozenset(one.name for one in places if one.read_only or refusals.of_deployment(one.name, found))


def of_row(row: JobRow, verdict: Verdict | None, flavour: Flavour, may: May, *, back: str) -> Acts | None:
    """Returns a row's buttons; None where ids are as long as payloads: a list of those would be megabytes of URLs."""
    return of_job(row, verdict, flavour, may, back=back) if len(row.ref.slug) <= ID_LIMIT else None


def of_job(row: JobRow, verdict: Verdict | None, flavour: Flavour, may: May, *, back: str, spread: int = 1) -> Acts:
    """Returns a job's buttons. `spread`: how many stand side by side before the rest goes into the menu."""
    offered = [act for act in catalog.offered(row, verdict, flavour) if may.do(act)]
    suggested = verdict.suggests if verdict else None
    shown = _shown(offered, suggested, spread)
    buttons = [job_button(act, row.ref, back, is_suggested=act is suggested) for act in offered]
    first = tuple(button for act, button in zip(offered, buttons, strict=True) if act in shown)
    more = tuple(button for act, button in zip(offered, buttons, strict=True) if act not in shown)
    return Acts(f"job {row.ref.label}", first, more)


def on_selection(acts: Iterable[Act], may: May) -> tuple[tuple[str, str], ...]:
    """Returns value and label of the buttons under a table with check boxes; the form sends the jobs."""
    return tuple((act.value, catalog.ENTRIES[act].label) for act in acts if may.do(act, many=True))


def on_queue(queue: Queue, may: May, *, back: str) -> Acts:
    """Returns the buttons at the head of the queue's page."""
    can = [act for act in catalog.on_queue(queue.flavour) if may.do(act)]
    first = [act for act in _switch(queue) if act in can]
    buttons = [queue_button(act, queue.ref, back) for act in first]
    failed = count_of(queue.sample, State.FAILED) if queue.sample else None
    if failed and Act.RETRY in _doable(queue.flavour) and may.do(Act.RETRY, many=True):
        buttons.append(_every_button(Act.RETRY, queue.ref, State.FAILED, back, "Retry all failed"))
    rest = [queue_button(act, queue.ref, back) for act in can if act not in (Act.PAUSE, Act.RESUME)]
    return Acts(f"queue {queue.ref.label}", tuple(buttons), tuple(rest))


def why_not_resume(queue: Queue, user: object) -> str:
    """Returns why this user cannot resume a paused queue; "" if they can, or if it is not paused."""
    if not (queue.sample and queue.sample.is_paused):
        return ""
    if is_read_only(queue.ref):
        return "the configuration makes this deployment read-only."
    if refusal := operators.refusals(queue.flavour).get(Act.RESUME):
        return refusal
    return "" if may(user).do(Act.RESUME) else "your role does not allow it."


def on_list(queue: Queue, state: State, may: May, *, back: str) -> tuple[Button, ...]:
    """Returns the buttons for all jobs of a list; for active jobs, those for all orphans."""
    if state is State.ACTIVE:
        return on_orphans(queue.ref, queue.flavour, stuck.count(queue.ref, Kind.ORPHAN) or 0, may, back=back)
    can = _doable(queue.flavour)
    acts = [act for act in _EVERY.get(state, ()) if act in can and may.do(act, many=True)]
    return tuple(_every_button(act, queue.ref, state, back, f"{catalog.ENTRIES[act].label} all") for act in acts)


def on_orphans(ref: QueueRef, flavour: Flavour, count: int, may: May, *, back: str) -> tuple[Button, ...]:
    """Returns the buttons for all orphans, the active jobs whose worker is proven to be gone; none without orphans."""
    if not count:
        return ()
    can, words = _doable(flavour), f"{count:,} orphan{'s' * (count != 1)}"
    acts = [act for act in (Act.REQUEUE, Act.FAIL) if act in can and may.do(act, many=True)]
    return tuple(_every_button(act, ref, Kind.ORPHAN, back, f"{catalog.ENTRIES[act].label} {words}") for act in acts)


def on_matching(
    lines: Sequence[Stuck], flavours: Mapping[QueueRef, Flavour], chosen: Filter, may: May, *, back: str
) -> tuple[Button, ...]:
    """Returns a button per action that fits any of these stuck jobs, which are those that match the filter."""
    # One line stands for all that are alike: of a thousand, a handful is checked.
    alike = {_look(line): line for line in lines if line.row and not is_read_only(line.job.queue)}.values()
    fitting = {
        act
        for line in alike
        if line.row and (flavour := flavours.get(line.job.queue))
        for act in catalog.offered(line.row, line.verdict, flavour)
    }
    return tuple(
        _matching_button(act, chosen, back, len(lines)) for act in MATCHING if act in fitting and may.do(act, many=True)
    )


def _look(line: Stuck) -> tuple[object, ...]:
    """Returns the facts that decide which actions fit."""
    row = line.row
    lock = (row.lock is None, row.lock is not None and row.lock.ttl is None) if row else None
    return line.job.queue, line.verdict.kind, lock, row and (row.state, row.lock_known, row.missing)


def _matching_button(act: Act, chosen: Filter, back: str, count: int) -> Button:
    entry = catalog.ENTRIES[act]
    url = address(act, matching=chosen, back=back)
    kind = "danger" if entry.tone == "danger" else ""
    return Button(_id(act, "matching"), f"{entry.label}…", url, kind, f"{entry.label} all {count:,} matching")


def of_rows(state: State, flavour: Flavour, may: May) -> tuple[tuple[str, str], ...]:
    """Returns value and label of the buttons for the selected rows of a list."""
    can = _doable(flavour)
    acts = [*_EVERY.get(state, ()), *((Act.RELEASE,) if state is State.ACTIVE else ())]
    return on_selection([act for act in acts if act in can], may)


def _doable(flavour: Flavour) -> frozenset[Act]:
    return frozenset(Act) - frozenset(operators.refusals(flavour))


def _switch(queue: Queue) -> tuple[Act, ...]:
    """Returns pause for a running queue, resume for a paused one, both when that is unknown."""
    paused = queue.sample.is_paused if queue.sample else None
    return (Act.PAUSE, Act.RESUME) if paused is None else ((Act.RESUME,) if paused else (Act.PAUSE,))


def _shown(offered: Sequence[Act], suggested: Act | None, spread: int) -> frozenset[Act]:
    """Chooses the actions outside the menu: the suggested one first; remove only if it is suggested."""
    ranked = [act for act in offered if act is suggested] + [
        act for act in offered if act not in (suggested, Act.REMOVE)
    ]
    return frozenset(ranked[:spread])


def job_button(act: Act, job: JobRef, back: str, *, is_suggested: bool = False) -> Button:
    entry = catalog.ENTRIES[act]
    url = address(act, [job], back=back)
    kind = "primary" if is_suggested else "danger" if entry.tone == "danger" else ""
    return Button(_id(act, f"{job.queue}#{job.id}"), entry.label, url, kind, f"{entry.label} job {job.label}")


def queue_button(act: Act, ref: QueueRef, back: str) -> Button:
    entry = catalog.ENTRIES[act]
    kind = "danger" if entry.tone == "danger" else ""
    label = f"{entry.label}…" if entry.in_steps else entry.label
    return Button(
        _id(act, str(ref)), label, address(act, queue=ref, back=back), kind, f"{entry.label} queue {ref.label}"
    )


def _every_button(act: Act, ref: QueueRef, state: State | Kind, back: str, label: str) -> Button:
    kind = "danger" if catalog.ENTRIES[act].tone == "danger" else ""
    url = address(act, queue=ref, every=state, back=back)
    return Button(_id(act, f"{ref}:{state}"), label, url, kind, f"{label} of {ref.label}")


def _id(act: Act, name: str) -> str:
    """Returns an element id that stays the same after a refresh, so that the focus stays where it was."""
    return f"do-{act}-{crc32(name.encode('utf-8', 'surrogateescape')):08x}"
