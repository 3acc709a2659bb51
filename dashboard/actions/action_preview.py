"""Previews an action for its dialog, from the request and from jobs that are read afresh, before any change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from dashboard.actions import confirmation, filter_selection
from dashboard.actions.action_request import JOBS_LIMIT, ActionRequest
from dashboard.actions.option_fields import CONSENTS
from dashboard.live import state_cache
from recovery import config
from recovery.actions import catalog, operators, runner
from recovery.actions.catalog import ENTRIES, ActionSpec
from recovery.actions.rules import ListRisks, judge_list
from recovery.actions.runner import ActionDryRun
from recovery.backends.base import MOVE_CHUNK
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, Actor, ExpectedJob, JobSideEffect
from recovery.domain.identifiers import JobRef, QueueRef, printable
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.stuck.types import VerdictKind
from recovery.errors import Unsupported
from recovery.reads.queues import job_lists
from recovery.reads.queues.job_lists import Queue
from recovery.reads.stuck import queries as stuck_queries
from recovery.reads.stuck.table_verdicts import is_table

AFFECTED_SHOWN = 20  # other jobs that change with those
NAMES_SHOWN = 5  # jobs named in the dialog; a person knows theirs by then
REASONS_SHOWN = 8  # different refusals
_MANY = runner.NAMED_FROM
_NO_RISK = "No known risk. Each job is checked again right before it is changed."
_AGAIN = "The job runs again from its start, so its side effects happen twice unless the job is idempotent."
_GONE = "The job is deleted. It can be restored for 24 hours, if there was room to keep it."
_PLAIN_RISK = {
    Action.REQUEUE: _AGAIN,
    Action.RETRY: _AGAIN,
    Action.FAIL: "The job does not run again unless a user retries it.",
    Action.RELEASE: "Low if the worker is gone: recovery does not wait for the lock to expire.",
    Action.REMOVE: _GONE,
    Action.CLEAN: _GONE,
    Action.DRAIN: _GONE,
    Action.PAUSE: "Jobs accumulate until a user resumes the queue.",
    Action.RESUME: "All accumulated jobs become runnable at once.",
    Action.PROMOTE: "The job runs earlier than its delay says.",
}
_PLACES = {  # where the jobs of an act are looked for first
    Action.REQUEUE: JobState.ACTIVE,
    Action.FAIL: JobState.ACTIVE,
    Action.RELEASE: JobState.ACTIVE,
    Action.CANCEL: JobState.ACTIVE,
    Action.RETRY: JobState.FAILED,
    Action.PROMOTE: JobState.DELAYED,
    Action.REMOVE: JobState.FAILED,
}


@dataclass(frozen=True, slots=True)
class ActionRefusal:
    """Reason of a refusal, the first job that it holds for, and how many jobs there are."""

    label: str
    why: str
    times: int = 1

    @property
    def others(self) -> int:
        return self.times - 1


@dataclass(frozen=True, slots=True)
class ActionPreview:
    """Everything that the dialog shows, and the orders behind it. `missing`: jobs that do not exist any more."""

    asked: ActionRequest
    orders: tuple[ActionCommand, ...]
    previews: tuple[ActionDryRun, ...]  # one per order, unless all of a list is meant
    at: int  # ms
    missing: tuple[JobRef, ...] = ()
    every: int | None = None  # how many the list holds, when all of it is meant
    left: tuple[ActionRefusal, ...] = ()  # whole queues that it cannot be done to
    note: str = ""  # which jobs are meant, when they were not named
    of_list: ListRisks = field(default_factory=ListRisks)  # when all of a list is meant

    @property
    def entry(self) -> ActionSpec:
        return ENTRIES[self.asked.act]

    @property
    def of_rows(self) -> bool:
        """True if all orders are for job tables."""
        return bool(self.orders) and all(is_table(config.current(), order.queue) for order in self.orders)

    @property
    def effect(self) -> str:
        return catalog.effect(self.asked.act, of_rows=self.of_rows)

    @property
    def options(self) -> ActionOptions:
        return self.orders[0].options if self.orders else ActionOptions()

    @property
    def allowed(self) -> frozenset[JobRef]:
        return frozenset(
            preview.order.queue.job(one.id) for preview in self.previews for one in preview.judgements if one.is_allowed
        )

    @property
    def is_on_queue(self) -> bool:
        return self.entry.is_for_queue

    @property
    def is_all(self) -> bool:
        return self.asked.every is not None

    @property
    def size(self) -> int | None:
        """Number of jobs it would change; None when that is not known before."""
        if self.is_all:
            return self.every
        return None if self.is_on_queue else len(self.allowed)

    @property
    def can_go(self) -> bool:
        if self.is_on_queue:
            return bool(self.allowed)
        return self.size is None or self.size > 0

    @property
    def is_grave(self) -> bool:
        return self.entry.irreversible or self.entry.tone == "danger"

    @property
    def is_long(self) -> bool:
        """True if it takes more than one chunk, for which no user should wait."""
        if self.entry.in_steps:
            counts = [preview.count for preview in self.previews]
            return any(count is None or count > MOVE_CHUNK for count in counts)
        if sum(len(order.jobs) for order in self.orders) > JOBS_LIMIT:
            return True
        return any(len(order.jobs) > _chunk(order) for order in self.orders if order.jobs)

    @property
    def shown(self) -> confirmation.ConfirmationDigest:
        others = {
            preview.order.queue.job(one.id): one.effects.affected
            for preview in self.previews
            for one in preview.judgements
            if one.effects.affected
        }
        every = self.asked.every_written
        return confirmation.make_digest(self.asked.act, self.orders, self.allowed, every, self.at, others=others)

    # -- in words

    @property
    def title(self) -> str:
        if self.is_on_queue:
            return f"{self.entry.label} the queue"
        if self.asked.every:
            return f"{self.entry.label} {_all(self.asked.every, self.every)} in"
        count = len(self.allowed) or sum(len(order.jobs) for order in self.orders) + len(self.missing)
        where = "" if self.queue else f" {len(self.orders)} queues"
        return f"{self.entry.label} {self.entry.counted(count)} in{where}"

    @property
    def queue(self) -> QueueRef | None:
        """The only queue that it is about; None if there are several."""
        queues = {order.queue for order in self.orders} | {job.queue for job in self.missing}
        return next(iter(queues)) if len(queues) == 1 else None

    @property
    def button(self) -> str:
        if self.is_on_queue:
            return self.entry.label
        size = self.size
        return f"{self.entry.label} {'all' if size is None else self.entry.counted(size)}"

    @property
    def change(self) -> str:
        if self.is_on_queue:
            return f"{self._about}{self.effect}"
        if self.size == 1:
            return self.effect
        if self.size == 0:
            return "Nothing."
        return f"{'All jobs' if self.size is None else self.entry.counted(self.size)}. {self.effect}"

    @property
    def named(self) -> tuple[dict[str, str], ...]:
        """Some of the jobs, by id and name."""
        found = [one for preview in self.previews for one in preview.judgements if one.is_allowed and one.id]
        return tuple(
            {"label": printable(one.id)[:120], "words": printable(one.name)[:120]} for one in found[:NAMES_SHOWN]
        )

    @property
    def affected(self) -> tuple[JobSideEffect, ...]:
        """Children and parents that change with the jobs, each once."""
        judged = (one for preview in self.previews for one in preview.judgements if one.is_allowed)
        return tuple(dict.fromkeys(other for one in judged for other in one.effects.affected))

    @property
    def affected_shown(self) -> tuple[JobSideEffect, ...]:
        return self.affected[:AFFECTED_SHOWN]

    @property
    def affected_more(self) -> int:
        return max(0, len(self.affected) - AFFECTED_SHOWN)

    @property
    def refused(self) -> tuple[ActionRefusal, ...]:
        judged = (one for preview in self.previews for one in preview.judgements)
        told = [(printable(one.id), _plainly(one.why)) for one in judged if not one.is_allowed]
        told += [(job.label, "The job does not exist (any more).") for job in self.missing]
        return (*self.left, *refusals(told))

    @property
    def risks(self) -> tuple[str, ...]:
        if not self.can_go:
            return ()
        told = dict.fromkeys((*self.of_list.risks, *(preview.risk for preview in self.previews if preview.risk)))
        return tuple(told) or (_PLAIN_RISK.get(self.asked.act, _NO_RISK),)

    @property
    def needs(self) -> frozenset[str]:
        """Consents that would lift a refusal, and those that were given."""
        whys = [one.why for preview in self.previews for one in preview.judgements if not one.is_allowed]
        needed = {name for name in CONSENTS if any(why.endswith(f"This needs {name}.") for why in whys)}
        return frozenset(needed | self.of_list.needs | {name for name in CONSENTS if getattr(self.options, name)})

    @property
    def word(self) -> str:
        """Text that the user has to type; "" for none."""
        if not self._needs_word:
            return ""
        return self.queue.label.strip() if self.queue else str(self.size)

    @property
    def word_why(self) -> str:
        if self.entry.irreversible:
            return "This deletes jobs."
        if self.size is None:
            return "How many jobs this affects is not known."
        return f"This affects {self.entry.counted(self.size + self._relatives)}."

    @property
    def _relatives(self) -> int:
        """Number of other jobs that are deleted, or fail, with those."""
        return sum(preview.relatives for preview in self.previews)

    @property
    def _about(self) -> str:
        count = next((preview.count for preview in self.previews), None)
        return "" if count is None else f"About {_jobs(count)}. "

    @property
    def _needs_word(self) -> bool:
        is_many = self.size is None or self.size + self._relatives >= _MANY
        return any(preview.needs_name for preview in self.previews) or (is_many and not self.is_on_queue)


def preview_action(
    asked: ActionRequest,
    actor: Actor,
    options: ActionOptions,
    reason: str,
    now: int,
    *,
    among: Collection[str] | None = None,
) -> ActionPreview:
    """Reads the jobs afresh, and previews the action. Raises Missing, Unsupported, Forbidden, StoreError.

    `among`: of all that match a filter, only those are meant that were shown.
    """
    if asked.matching is not None:
        wanted = ActionCommand(asked.act, QueueRef("", ""), actor, reason, options=options)
        return _on_matching(asked, filter_selection.select_matching(wanted, asked.matching, among), now)
    if asked.queue is not None and not asked.jobs:
        order = ActionCommand(asked.act, asked.queue, actor, reason, options=_cleaned(asked.act, options))
        return (
            _on_all(asked, order, now) if asked.every else ActionPreview(asked, (order,), (runner.preview(order),), now)
        )
    if len(asked.jobs) > 1:  # of several queues, each may have only one
        entry = ENTRIES[asked.act]
        runner.require(actor, f"{entry.label} of more than one job", entry.right(many=True))
    found, missing = _looked(asked)
    orders = {
        ref: ActionCommand(asked.act, ref, actor, reason, tuple(map(ExpectedJob.of, rows)), options)
        for ref, rows in found.items()
    }
    previews = tuple(runner.preview(order, found[ref]) for ref, order in orders.items())
    return ActionPreview(asked, tuple(orders.values()), previews, now, missing)


def _on_matching(asked: ActionRequest, found: filter_selection.FilterSelection, now: int) -> ActionPreview:
    previews = tuple(part.preview for part in found.parts if part.preview)
    return ActionPreview(
        asked,
        tuple(preview.order for preview in previews),
        previews,
        now,
        tuple(job for part in found.parts for job in part.missing),
        left=tuple(
            ActionRefusal(part.queue.label, f"{_jobs(part.count)}: {part.why}") for part in found.parts if part.why
        ),
        note=found.note,
    )


def _on_all(asked: ActionRequest, order: ActionCommand, now: int) -> ActionPreview:
    """Previews an action on a whole list, as far as known at once: the scheduler gathers and checks it by chunks."""
    entry = ENTRIES[order.act]
    runner.require(order.actor, f"{entry.label} of a whole list", entry.right(many=True))
    queue = job_lists.locate(order.queue, state_cache.newest_snapshot())
    if reason := operators.refusals(queue.flavour).get(asked.act):
        raise Unsupported(reason)
    of_list = judge_list(order.act, order.queue, queue.flavour, order.options, asked.every)
    return ActionPreview(asked, (order,), (), now, every=_count(queue, asked.every), of_list=of_list)


def refusals(told: Iterable[tuple[str, str]]) -> tuple[ActionRefusal, ...]:
    """Groups refusals by reason, the most frequent first."""
    told = list(told)
    counted = Counter(why for _, why in told)
    first = {why: label for label, why in reversed(told)}
    return tuple(ActionRefusal(first[why], why, times) for why, times in counted.most_common(REASONS_SHOWN))


def allowed_orders(proposal: ActionPreview) -> tuple[ActionCommand, ...]:
    """Returns the orders without the jobs that were shown as refused, and for no other relatives than were shown."""
    allowed = proposal.allowed
    shown = frozenset(str(one.job) for one in proposal.affected)
    kept = (
        replace(
            order,
            jobs=tuple(seen for seen in order.jobs if order.queue.job(seen.id) in allowed),
            options=replace(order.options, affected=shown),
        )
        for order in proposal.orders
    )
    return tuple(order for order in kept if order.jobs)


def _looked(asked: ActionRequest) -> tuple[dict[QueueRef, list[JobRow]], tuple[JobRef, ...]]:
    """Reads each job once, so that the rows stand for what an order names."""
    found: dict[QueueRef, list[JobRow]] = {}
    missing: list[JobRef] = []
    for ref, named in asked.queues.items():
        queue, ids = job_lists.locate(ref, state_cache.newest_snapshot()), list(dict.fromkeys(named))
        place = asked.place or _PLACES.get(asked.act, JobState.WAITING)
        rows = queue.rows([(id, place) for id in ids], by_script=True)
        missing += [ref.job(id) for id, row in zip(ids, rows, strict=True) if row is None]
        if there := [row for row in rows if row is not None]:
            found[ref] = there
    return found, tuple(missing)


def _chunk(order: ActionCommand) -> int:
    queue = job_lists.locate(order.queue, state_cache.newest_snapshot())
    return operators.operator(queue.flavour).chunk(order.act)


def _cleaned(act: Action, options: ActionOptions) -> ActionOptions:
    """Presets the state that is cleaned most often, so that the dialog has an answer at once."""
    return replace(options, state=JobState.COMPLETED) if act is Action.CLEAN and options.state is None else options


def _plainly(why: str) -> str:
    """Returns the reason without the consent that it takes, which the dialog asks for further down."""
    for name in CONSENTS:
        why = why.removesuffix(f" This needs {name}.")
    return why


def _count(queue: Queue, every: JobState | VerdictKind | None) -> int | None:
    """Counts by the newest snapshot, or the last check of active jobs; each is checked again before it is changed."""
    if isinstance(every, JobState):
        return job_lists.count_of(queue.sample, every) if queue.sample else None
    return None if every is None else stuck_queries.count(queue.ref, every)


def _all(every: JobState | VerdictKind, count: int | None) -> str:
    """Writes `all orphans`, `1 orphan`, `150 failed jobs`."""
    words = f"{every.value} job" if isinstance(every, JobState) else every.value
    return f"{f'{count:,}' if count else 'all'} {words}{'s' * (count != 1)}"


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' * (count != 1)}"
