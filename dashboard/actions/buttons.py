"""Builds the action buttons that a user gets: what fits the job or queue, its library, and the user's role.

Each leads to the dialog (a page without scripts), where the engine checks again; hiding one is a convenience, no guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from dashboard.accounts.roles import rights_of
from dashboard.actions.action_request import MATCHING, action_url
from dashboard.base.job_rows import ID_LIMIT
from dashboard.stuck.filters import StuckFilter
from recovery import config
from recovery.actions import catalog, operators
from recovery.domain.actions.types import Action, Right
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import LibraryVersion
from recovery.domain.stuck.types import StuckJob, Verdict, VerdictKind
from recovery.reads.queues.job_lists import Queue, count_of
from recovery.reads.scanners import rights_refusals
from recovery.reads.stuck import queries as stuck_queries


@dataclass(frozen=True, slots=True)
class Button:
    """A button. `title` is its full name for screen readers, which may read it without its row."""

    id: str
    label: str
    url: str
    kind: str
    title: str


@dataclass(frozen=True, slots=True)
class ActionButtons:
    """Buttons of one job or queue: `first` stand in the row, `more` in its menu."""

    of: str
    first: tuple[Button, ...] = ()
    more: tuple[Button, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.first or self.more)


@dataclass(frozen=True, slots=True)
class ActionPermissions:
    """Rights of one user in one deployment."""

    rights: frozenset[Right] = frozenset()

    @property
    def act(self) -> bool:
        return Right.ACT in self.rights

    @property
    def bulk(self) -> bool:
        return Right.BULK in self.rights

    def do(self, act: Action, *, many: bool = False) -> bool:
        return catalog.ENTRIES[act].right(many=many) in self.rights


# Bulk actions for all jobs of a list; the first one is what users most often come to that list for.
_EVERY = {
    JobState.FAILED: (Action.RETRY, Action.REMOVE),
    JobState.COMPLETED: (Action.REMOVE, Action.RETRY),
    JobState.DELAYED: (Action.PROMOTE, Action.REMOVE),
    JobState.WAITING: (Action.REMOVE,),
    JobState.PRIORITIZED: (Action.REMOVE,),
    JobState.PAUSED: (Action.REMOVE,),
    JobState.WAITING_CHILDREN: (Action.REMOVE,),
    JobState.ACTIVE: (Action.REQUEUE, Action.FAIL),
}


def action_permissions(user: object, deployment: str = "") -> ActionPermissions:
    """Returns the user's rights; none in a read-only deployment. "": in whatever deployment."""
    if deployment in _read_only():
        return ActionPermissions()
    return ActionPermissions(rights_of(user))


def is_read_only(ref: QueueRef) -> bool:
    """Returns True if its deployment is read-only, by configuration or by its Redis user's rights."""
    return ref.deployment in _read_only()


def _read_only() -> frozenset[str]:
    found = rights_refusals.newest()
    places = config.current().places
    return frozenset(one.name for one in places if one.read_only or rights_refusals.of_deployment(one.name, found))


def buttons_for_row(
    row: JobRow, verdict: Verdict | None, flavour: LibraryVersion, may: ActionPermissions, *, back: str
) -> ActionButtons | None:
    """Returns a row's buttons; None where ids are as long as payloads: a list of those would be megabytes of URLs."""
    return buttons_for_job(row, verdict, flavour, may, back=back) if len(row.ref.slug) <= ID_LIMIT else None


def buttons_for_job(
    row: JobRow, verdict: Verdict | None, flavour: LibraryVersion, may: ActionPermissions, *, back: str, spread: int = 1
) -> ActionButtons:
    """Returns a job's buttons. `spread`: how many stand side by side before the rest goes into the menu."""
    offered = [act for act in catalog.offered(row, verdict, flavour) if may.do(act)]
    suggested = verdict.suggests if verdict else None
    shown = _shown(offered, suggested, spread)
    buttons = [job_button(act, row.ref, back, is_suggested=act is suggested) for act in offered]
    first = tuple(button for act, button in zip(offered, buttons, strict=True) if act in shown)
    more = tuple(button for act, button in zip(offered, buttons, strict=True) if act not in shown)
    return ActionButtons(f"job {row.ref.label}", first, more)


def selection_choices(acts: Iterable[Action], may: ActionPermissions) -> tuple[tuple[str, str], ...]:
    """Returns value and label of the buttons under a table with check boxes; the form sends the jobs."""
    return tuple((act.value, catalog.ENTRIES[act].label) for act in acts if may.do(act, many=True))


def buttons_for_queue(queue: Queue, may: ActionPermissions, *, back: str) -> ActionButtons:
    """Returns the buttons at the head of the queue's page."""
    can = [act for act in catalog.on_queue(queue.flavour) if may.do(act)]
    first = [act for act in _switch(queue) if act in can]
    buttons = [queue_button(act, queue.ref, back) for act in first]
    failed = count_of(queue.sample, JobState.FAILED) if queue.sample else None
    if failed and Action.RETRY in _doable(queue.flavour) and may.do(Action.RETRY, many=True):
        buttons.append(_every_button(Action.RETRY, queue.ref, JobState.FAILED, back, "Retry all failed"))
    rest = [queue_button(act, queue.ref, back) for act in can if act not in (Action.PAUSE, Action.RESUME)]
    return ActionButtons(f"queue {queue.ref.label}", tuple(buttons), tuple(rest))


def why_not_resume(queue: Queue, user: object) -> str:
    """Returns why this user cannot resume a paused queue; "" if they can, or if it is not paused."""
    if not (queue.sample and queue.sample.is_paused):
        return ""
    if is_read_only(queue.ref):
        return "the configuration makes this deployment read-only."
    if refusal := operators.refusals(queue.flavour).get(Action.RESUME):
        return refusal
    return "" if action_permissions(user).do(Action.RESUME) else "your role does not allow it."


def buttons_for_list(queue: Queue, state: JobState, may: ActionPermissions, *, back: str) -> tuple[Button, ...]:
    """Returns the buttons for all jobs of a list; for active jobs, those for all orphans."""
    if state is JobState.ACTIVE:
        return buttons_for_orphans(
            queue.ref, queue.flavour, stuck_queries.count(queue.ref, VerdictKind.ORPHAN) or 0, may, back=back
        )
    can = _doable(queue.flavour)
    acts = [act for act in _EVERY.get(state, ()) if act in can and may.do(act, many=True)]
    return tuple(_every_button(act, queue.ref, state, back, f"{catalog.ENTRIES[act].label} all") for act in acts)


def buttons_for_orphans(
    ref: QueueRef, flavour: LibraryVersion, count: int, may: ActionPermissions, *, back: str
) -> tuple[Button, ...]:
    """Returns the buttons for all orphans, the active jobs whose worker is proven to be gone; none without orphans."""
    if not count:
        return ()
    can, words = _doable(flavour), f"{count:,} orphan{'s' * (count != 1)}"
    acts = [act for act in (Action.REQUEUE, Action.FAIL) if act in can and may.do(act, many=True)]
    return tuple(
        _every_button(act, ref, VerdictKind.ORPHAN, back, f"{catalog.ENTRIES[act].label} {words}") for act in acts
    )


def buttons_for_matching(
    lines: Sequence[StuckJob],
    flavours: Mapping[QueueRef, LibraryVersion],
    chosen: StuckFilter,
    may: ActionPermissions,
    *,
    back: str,
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


def _look(line: StuckJob) -> tuple[object, ...]:
    """Returns the facts that decide which actions fit."""
    row = line.row
    lock = (row.lock is None, row.lock is not None and row.lock.ttl is None) if row else None
    return line.job.queue, line.verdict.kind, lock, row and (row.state, row.lock_known, row.missing)


def _matching_button(act: Action, chosen: StuckFilter, back: str, count: int) -> Button:
    entry = catalog.ENTRIES[act]
    url = action_url(act, matching=chosen, back=back)
    kind = "danger" if entry.tone == "danger" else ""
    return Button(_id(act, "matching"), f"{entry.label}…", url, kind, f"{entry.label} all {count:,} matching")


def row_selection_choices(
    state: JobState, flavour: LibraryVersion, may: ActionPermissions
) -> tuple[tuple[str, str], ...]:
    """Returns value and label of the buttons for the selected rows of a list."""
    can = _doable(flavour)
    acts = [*_EVERY.get(state, ()), *((Action.RELEASE,) if state is JobState.ACTIVE else ())]
    return selection_choices([act for act in acts if act in can], may)


def _doable(flavour: LibraryVersion) -> frozenset[Action]:
    return frozenset(Action) - frozenset(operators.refusals(flavour))


def _switch(queue: Queue) -> tuple[Action, ...]:
    """Returns pause for a running queue, resume for a paused one, both when that is unknown."""
    paused = queue.sample.is_paused if queue.sample else None
    return (Action.PAUSE, Action.RESUME) if paused is None else ((Action.RESUME,) if paused else (Action.PAUSE,))


def _shown(offered: Sequence[Action], suggested: Action | None, spread: int) -> frozenset[Action]:
    """Chooses the actions outside the menu: the suggested one first; remove only if it is suggested."""
    ranked = [act for act in offered if act is suggested] + [
        act for act in offered if act not in (suggested, Action.REMOVE)
    ]
    return frozenset(ranked[:spread])


def job_button(act: Action, job: JobRef, back: str, *, is_suggested: bool = False) -> Button:
    entry = catalog.ENTRIES[act]
    url = action_url(act, [job], back=back)
    kind = "primary" if is_suggested else "danger" if entry.tone == "danger" else ""
    return Button(_id(act, f"{job.queue}#{job.id}"), entry.label, url, kind, f"{entry.label} job {job.label}")


def queue_button(act: Action, ref: QueueRef, back: str) -> Button:
    entry = catalog.ENTRIES[act]
    kind = "danger" if entry.tone == "danger" else ""
    label = f"{entry.label}…" if entry.in_steps else entry.label
    return Button(
        _id(act, str(ref)), label, action_url(act, queue=ref, back=back), kind, f"{entry.label} queue {ref.label}"
    )


def _every_button(act: Action, ref: QueueRef, state: JobState | VerdictKind, back: str, label: str) -> Button:
    kind = "danger" if catalog.ENTRIES[act].tone == "danger" else ""
    url = action_url(act, queue=ref, every=state, back=back)
    return Button(_id(act, f"{ref}:{state}"), label, url, kind, f"{label} of {ref.label}")


def _id(act: Action, name: str) -> str:
    """Returns an element id that stays the same after a refresh, so that the focus stays where it was."""
    return f"do-{act}-{crc32(name.encode('utf-8', 'surrogateescape')):08x}"
