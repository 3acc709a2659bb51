"""Previews an action for its dialog, from the request and from jobs that are read afresh, before any change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from dashboard import confirmation, matching
from dashboard.choices import CONSENTS
from dashboard.live import mirror
from dashboard.wishes import JOBS_LIMIT, Wish
from recovery import config
from recovery.actions import catalog, operators, runner
from recovery.actions.catalog import ENTRIES, Entry
from recovery.actions.judge import ListRisks, judge_list
from recovery.actions.runner import Preview
from recovery.backends.base import MOVE_CHUNK
from recovery.domain.acting import Act, Actor, Affected, Options, Order, Seen
from recovery.domain.jobs import JobRow, State
from recovery.domain.refs import JobRef, QueueRef, shown
from recovery.domain.verdicts import Kind
from recovery.errors import Unsupported
from recovery.reads import lists, stuck
from recovery.reads.lists import Queue
from recovery.reads.tables import is_table

AFFECTED_SHOWN = 20  # other jobs that change with those
NAMES_SHOWN = 5  # jobs named in the dialog; a person knows theirs by then
REASONS_SHOWN = 8  # different refusals
_MANY = runner.NAMED_FROM
_NO_RISK = "No known risk. Each job is checked again right before it is changed."
_AGAIN = "The job runs again from its start, so its side effects happen twice unless the job is idempotent."
_GONE = "The job is deleted. It can be restored for 24 hours, if there was room to keep it."
_PLAIN_RISK = {
    Act.REQUEUE: _AGAIN,
    Act.RETRY: _AGAIN,
    Act.FAIL: "The job does not run again unless a user retries it.",
    Act.RELEASE: "Low if the worker is gone: recovery does not wait for the lock to expire.",
    Act.REMOVE: _GONE,
    Act.CLEAN: _GONE,
    Act.DRAIN: _GONE,
    Act.PAUSE: "Jobs accumulate until a user resumes the queue.",
    Act.RESUME: "All accumulated jobs become runnable at once.",
    Act.PROMOTE: "The job runs earlier than its delay says.",
}
_PLACES = {  # where the jobs of an act are looked for first
    Act.REQUEUE: State.ACTIVE,
    Act.FAIL: State.ACTIVE,
    Act.RELEASE: State.ACTIVE,
    Act.CANCEL: State.ACTIVE,
    Act.RETRY: State.FAILED,
    Act.PROMOTE: State.DELAYED,
    Act.REMOVE: State.FAILED,
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Reason of a refusal, the first job that it holds for, and how many jobs there are."""

    label: str
    why: str
    times: int = 1

    @property
    def others(self) -> int:
        return self.times - 1


@dataclass(frozen=True, slots=True)
class Proposal:
    """Everything that the dialog shows, and the orders behind it. `missing`: jobs that do not exist any more."""

    wish: Wish
    orders: tuple[Order, ...]
    previews: tuple[Preview, ...]  # one per order, unless all of a list is meant
    at: int  # ms
    missing: tuple[JobRef, ...] = ()
    every: int | None = None  # how many the list holds, when all of it is meant
    left: tuple[Refusal, ...] = ()  # whole queues that it cannot be done to
    note: str = ""  # which jobs are meant, when they were not named
    of_list: ListRisks = field(default_factory=ListRisks)  # when all of a list is meant

    @property
    def entry(self) -> Entry:
        return ENTRIES[self.wish.act]

    @property
    def of_rows(self) -> bool:
        """True if all orders are for job tables."""
        return bool(self.orders) and all(is_table(config.current(), order.queue) for order in self.orders)

    @property
    def effect(self) -> str:
        return catalog.effect(self.wish.act, of_rows=self.of_rows)

    @property
    def options(self) -> Options:
        return self.orders[0].options if self.orders else Options()

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
        return self.wish.every is not None

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
    def shown(self) -> confirmation.Shown:
        others = {
            preview.order.queue.job(one.id): one.effects.affected
            for preview in self.previews
            for one in preview.judgements
            if one.effects.affected
        }
        every = self.wish.every_written
        return confirmation.shown(self.wish.act, self.orders, self.allowed, every, self.at, others=others)

    # -- in words

    @property
    def title(self) -> str:
        if self.is_on_queue:
            return f"{self.entry.label} the queue"
        if self.wish.every:
            return f"{self.entry.label} {_all(self.wish.every, self.every)} in"
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
        return tuple({"label": shown(one.id)[:120], "words": shown(one.name)[:120]} for one in found[:NAMES_SHOWN])

    @property
    def affected(self) -> tuple[Affected, ...]:
        """Children and parents that change with the jobs, each once."""
        judged = (one for preview in self.previews for one in preview.judgements if one.is_allowed)
        return tuple(dict.fromkeys(other for one in judged for other in one.effects.affected))

    @property
    def affected_shown(self) -> tuple[Affected, ...]:
        return self.affected[:AFFECTED_SHOWN]

    @property
    def affected_more(self) -> int:
        return max(0, len(self.affected) - AFFECTED_SHOWN)

    @property
    def refused(self) -> tuple[Refusal, ...]:
        judged = (one for preview in self.previews for one in preview.judgements)
        told = [(shown(one.id), _plainly(one.why)) for one in judged if not one.is_allowed]
        told += [(job.label, "The job does not exist (any more).") for job in self.missing]
        return (*self.left, *refusals(told))

    @property
    def risks(self) -> tuple[str, ...]:
        if not self.can_go:
            return ()
        told = dict.fromkeys((*self.of_list.risks, *(preview.risk for preview in self.previews if preview.risk)))
        return tuple(told) or (_PLAIN_RISK.get(self.wish.act, _NO_RISK),)

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


def propose(
    wish: Wish, actor: Actor, options: Options, reason: str, now: int, *, among: Collection[str] | None = None
) -> Proposal:
    """Reads the jobs afresh, and previews the action. Raises Missing, Unsupported, Forbidden, StoreError.

    `among`: of all that match a filter, only those are meant that were shown.
    """
    if wish.matching is not None:
        wanted = Order(wish.act, QueueRef("", ""), actor, reason, options=options)
        return _on_matching(wish, matching.look(wanted, wish.matching, among), now)
    if wish.queue is not None and not wish.jobs:
        order = Order(wish.act, wish.queue, actor, reason, options=_cleaned(wish.act, options))
        return _on_all(wish, order, now) if wish.every else Proposal(wish, (order,), (runner.preview(order),), now)
    if len(wish.jobs) > 1:  # of several queues, each may have only one
        entry = ENTRIES[wish.act]
        runner.require(actor, f"{entry.label} of more than one job", entry.right(many=True))
    found, missing = _looked(wish)
    orders = {
        ref: Order(wish.act, ref, actor, reason, tuple(map(Seen.of, rows)), options) for ref, rows in found.items()
    }
    previews = tuple(runner.preview(order, found[ref]) for ref, order in orders.items())
    return Proposal(wish, tuple(orders.values()), previews, now, missing)


def _on_matching(wish: Wish, found: matching.Look, now: int) -> Proposal:
    previews = tuple(part.preview for part in found.parts if part.preview)
    return Proposal(
        wish,
        tuple(preview.order for preview in previews),
        previews,
        now,
        tuple(job for part in found.parts for job in part.missing),
        left=tuple(Refusal(part.queue.label, f"{_jobs(part.count)}: {part.why}") for part in found.parts if part.why),
        note=found.note,
    )


def _on_all(wish: Wish, order: Order, now: int) -> Proposal:
    """Previews an action on a whole list, as far as known at once: the scheduler gathers and checks it by chunks."""
    entry = ENTRIES[order.act]
    runner.require(order.actor, f"{entry.label} of a whole list", entry.right(many=True))
    queue = lists.locate(order.queue, mirror.newest())
    if reason := operators.refusals(queue.flavour).get(wish.act):
        raise Unsupported(reason)
    of_list = judge_list(order.act, order.queue, queue.flavour, order.options, wish.every)
    return Proposal(wish, (order,), (), now, every=_count(queue, wish.every), of_list=of_list)


def refusals(told: Iterable[tuple[str, str]]) -> tuple[Refusal, ...]:
    """Groups refusals by reason, the most frequent first."""
    told = list(told)
    counted = Counter(why for _, why in told)
    first = {why: label for label, why in reversed(told)}
    return tuple(Refusal(first[why], why, times) for why, times in counted.most_common(REASONS_SHOWN))


def only_allowed(proposal: Proposal) -> tuple[Order, ...]:
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


def _looked(wish: Wish) -> tuple[dict[QueueRef, list[JobRow]], tuple[JobRef, ...]]:
    """Reads each job once, so that the rows stand for what an order names."""
    found: dict[QueueRef, list[JobRow]] = {}
    missing: list[JobRef] = []
    for ref, named in wish.queues.items():
        queue, ids = lists.locate(ref, mirror.newest()), list(dict.fromkeys(named))
        place = wish.place or _PLACES.get(wish.act, State.WAITING)
        rows = queue.rows([(id, place) for id in ids], by_script=True)
        missing += [ref.job(id) for id, row in zip(ids, rows, strict=True) if row is None]
        if there := [row for row in rows if row is not None]:
            found[ref] = there
    return found, tuple(missing)


def _chunk(order: Order) -> int:
    queue = lists.locate(order.queue, mirror.newest())
    return operators.operator(queue.flavour).chunk(order.act)


def _cleaned(act: Act, options: Options) -> Options:
    """Presets the state that is cleaned most often, so that the dialog has an answer at once."""
    return replace(options, state=State.COMPLETED) if act is Act.CLEAN and options.state is None else options


def _plainly(why: str) -> str:
    """Returns the reason without the consent that it takes, which the dialog asks for further down."""
    for name in CONSENTS:
        why = why.removesuffix(f" This needs {name}.")
    return why


def _count(queue: Queue, every: State | Kind | None) -> int | None:
    """Counts by the newest snapshot, or the last check of active jobs; each is checked again before it is changed."""
    if isinstance(every, State):
        return lists.count_of(queue.sample, every) if queue.sample else None
    return None if every is None else stuck.count(queue.ref, every)


def _all(every: State | Kind, count: int | None) -> str:
    """Writes `all orphans`, `1 orphan`, `150 failed jobs`."""
    words = f"{every.value} job" if isinstance(every, State) else every.value
    return f"{f'{count:,}' if count else 'all'} {words}{'s' * (count != 1)}"


def _jobs(count: int) -> str:
    return f"{count:,} job{'s' * (count != 1)}"
