"""Executes a bulk run chunk by chunk until its time is up: each is selected, judged, executed and recorded together.

Jobs that were named are rows of the database from the beginning. Those that a selection means are found on the way:
what is read of a job to see whether it is meant is also the fresh look before the action, and the script compares it.

A run is safe to repeat: an item has its outcome written after its chunk, and until then the number of the intent. A
chunk that was cut off is looked at again, and a job that moved meanwhile is not touched: this run may have moved it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from django.db import transaction
from django.db.models import F, QuerySet

from recovery.actions import audit, gather, jobs, queues, runner, runs, sight
from recovery.actions.catalog import ENTRIES
from recovery.actions.claims import Claim, Lost
from recovery.actions.jobs import Callbacks
from recovery.domain.acting import Act, Done, JobResult, Order, Outcome, Seen
from recovery.domain.chain import job_key
from recovery.domain.jobs import JobRow, State
from recovery.domain.mandate import Mandate
from recovery.domain.refs import slug, unslug
from recovery.errors import Fenced
from recovery.models import AuditEntry, AuditJob, BulkItem, BulkRun

CUT_OFF = "It was tried in #{number}, which was interrupted; it is {state} now. This run may have caused that."
NOT_DONE = "It was interrupted and checked again: this job was not changed."
# Kept in an item's `why` while it has no outcome: a job is tried twice at most, or a script that fails would fail
# for ever, each time with two more entries in the audit.
_SECOND = "second try"


class Held(Exception):
    """Raised when a bulk run cannot continue for now; the text says why."""


class HeldByConsole(Held):
    """Raised when another console acts there. Its end is known without asking the store: it may be looked for often."""


@dataclass(slots=True)
class FoundJobs:
    """Jobs of a run that have rows already: a list that changes may show one twice. They are read from the database
    once, for as long as no other process takes the run.
    """

    jobs: set[str] = field(default_factory=set)
    count: int = 0
    beat: int | None = None  # `beat_at` of the run when this process left it

    def add(self, jobs: Iterable[str]) -> None:
        before = len(self.jobs)
        self.jobs.update(jobs)
        self.count += len(self.jobs) - before

    def of(self, claim: Claim) -> FoundJobs:
        """Returns this, or reads the rows again if another process has worked on the run meanwhile."""
        if self.beat is not None and self.beat == claim.before:
            return self
        jobs = list(BulkItem.objects.filter(run=claim.run).values_list("job", flat=True))
        return FoundJobs(set(jobs), len(jobs))


def work(
    claim: Claim, go_on: Callable[[], bool], mandate: Mandate | None = None, found: FoundJobs | None = None
) -> FoundJobs:
    """Executes a run until it ended or `go_on` returns False. `mandate`: the scheduler's; `found`: returned before.

    Raises Lost, Held, Fenced, StoreError, NotRecorded, Unsupported, Missing.
    """
    run = claim.run
    if run.started_at is None:
        claim.beat(sight.now(), started_at=sight.now())
    order = runs.order_of(run)
    if mandate:
        if rival := mandate.rival(order.queue.deployment):
            raise HeldByConsole(rival)
        order = replace(order, epoch=mandate.epoch, installation=mandate.installation)
    scene = sight.scene(order.queue, order.act, order.epoch, order.installation)
    scene.operator.fence(scene.target)  # earlier leaders are refused from now on, so what we read stays true
    if ENTRIES[order.act].in_steps:
        _sweep(claim, order, go_on)
        return FoundJobs()
    selection, size = runs.selection_of(run), scene.operator.chunk(order.act)
    walk = (
        _Walk(claim, order, selection, (found or FoundJobs()).of(claim))
        if selection and run.cursor != runs.ALL
        else None
    )
    status = runs.GATHERING if walk and run.total <= walk.found.count else runs.RUNNING
    if run.status != status:
        claim.beat(sight.now(), status=status)
    has_left = True
    while _is_wanted(claim, go_on):
        items = list(_left(run)[:size]) if has_left else []
        if items:
            _listed(claim, order, items)
            continue
        has_left = False
        if walk is None or run.cursor == runs.ALL:
            _end(claim, runs.ENDED)
            break
        walk.step(size)
    return replace(walk.found, beat=run.beat_at) if walk else FoundJobs()


def _left(run: BulkRun) -> QuerySet[BulkItem]:
    return BulkItem.objects.filter(run=run, outcome="").order_by("place")


def _is_wanted(claim: Claim, go_on: Callable[[], bool]) -> bool:
    """Returns True between chunks if no stop was requested, the claim is still ours, and there is time. Raises Lost."""
    if claim.wants_stop(sight.now()):
        _end(claim, runs.STOPPED)
        return False
    return go_on()


class _Walk:
    """Reads the jobs of a selection window by window, and acts on each window before it reads the next."""

    def __init__(self, claim: Claim, order: Order, selection: gather.Selection, found: FoundJobs) -> None:
        self._claim, self._order, self._selection, self.found = claim, order, selection, found
        self._has_news = bool(claim.run.cursor)  # jobs were recorded since the list was last begun at its first job

    def step(self, size: int) -> None:
        """Reads one window and acts on it. Its jobs get rows in the transaction of the intent of their attempt."""
        run, order = self._claim.run, self._order
        scene = sight.scene(order.queue, order.act, order.epoch, order.installation)
        part = gather.part(scene, self._selection, run.cursor, size, insists=True)
        rows = [row for row in part.rows if slug(row.id) not in self.found.jobs]
        if not rows:
            self._go_on(scene, part, part.next)
            return
        seen, first = tuple(map(Seen.of, rows)), self.found.count
        order = replace(order, jobs=seen)
        verdicts = part.verdicts or sight.verdicts(order.act, scene, rows, insists=True)
        looked = sight.judged_rows(order, scene, seen, rows, verdicts)
        places = [_Place(first + at, one.id) for at, one in enumerate(seen)]
        chunk = _Chunk(self._claim, places, lambda intent: runs.put(run, seen, first, intent))
        try:
            chunk.settle(runner.perform_looked(order, scene, looked, chunk.callbacks))
        finally:
            if chunk.is_written:
                self.found.add(slug(one.id) for one in seen)
                self._has_news = True
        stays = {one.judgement.id for one in looked if not one.judgement.is_allowed}
        self._go_on(scene, part, part.next_without({one.id for one in seen} - stays))

    def _go_on(self, scene: sight.Scene, part: gather.Part, cursor: str) -> None:
        """Moves the cursor on; until then a window is read again, and its known jobs are skipped.

        Workers take jobs from a list meanwhile, and some may be passed over: it is read again until no new job appears.
        """
        run, found = self._claim.run, self.found.count
        guess = run.total if run.cursor else gather.expected(scene, self._selection, part.total) or 0
        facts = {"cursor": cursor, "total": max(found, guess), "status": runs.RUNNING}
        if not part.next:
            is_over = not self._has_news or self._selection.state not in _LISTS
            facts |= {"cursor": runs.ALL if is_over else "", "total": found}
            self._has_news = False
        elif guess <= found:
            facts["status"] = runs.GATHERING
        self._claim.beat(sight.now(), **facts)


_LISTS = frozenset({State.ACTIVE, State.WAITING, State.PAUSED})


# -- chunks


class _Place(NamedTuple):
    """One job of a run. `is_second`: it was tried before, and what came of it was not known."""

    place: int
    job: str
    is_second: bool = False


class _Chunk:
    """Jobs of a run that are done together. `write` marks them with the intent in which they are tried."""

    def __init__(self, claim: Claim, places: Sequence[_Place], write: Callable[[int | None], None]) -> None:
        self._claim, self._places, self._write = claim, places, write
        self._is_tried_once = ENTRIES[Act(claim.run.act)].is_tried_once
        self._settled: tuple[JobResult, ...] | None = None
        self._lost: Lost | None = None
        self.is_written = False
        self.callbacks = Callbacks(self._mark, self._conclude)

    def settle(self, results: tuple[JobResult, ...]) -> None:
        """Writes each job's result into its item, unless done with the outcome in the audit. Raises Lost, Held."""
        if self._lost is not None:
            raise self._lost
        if results != self._settled:
            with transaction.atomic():
                if not self.is_written:
                    self._mark(None)
                self._into_items(results)
        if cut_off := [result for place, result in self._pairs(results) if self._is_cut_off(place, result)]:
            raise Held(cut_off[0].why)

    def _mark(self, intent: int | None) -> None:
        """Records in which entry the items are tried, before anything is done, for the next process. Raises Lost."""
        self._claim.insist()
        self._write(intent)
        self.is_written = True

    def _conclude(self, results: tuple[JobResult, ...]) -> None:
        """Writes the results in the transaction of the outcome, which stands even if another has the run by now."""
        try:
            with transaction.atomic():
                self._into_items(results)
        except Lost as lost:
            self._lost = lost
        else:
            self._settled = results

    def _into_items(self, results: tuple[JobResult, ...]) -> None:
        pairs = self._pairs(results)
        cut_off = [(place.place, result) for place, result in pairs if self._is_cut_off(place, result)]
        _settle(self._claim, [(place.place, result) for place, result in pairs if not self._is_cut_off(place, result)])
        if tried := [place for place, result in cut_off if not result.is_untried]:
            _items(self._claim.run, tried).update(why=_SECOND)

    def _is_cut_off(self, place: _Place, result: JobResult) -> bool:
        """Returns True if the job is to be looked at again: its result is not known, or nothing was sent for it."""
        is_first = not (place.is_second or self._is_tried_once)
        return result.is_untried or (result.outcome is Outcome.UNKNOWN and is_first)

    def _pairs(self, results: tuple[JobResult, ...]) -> list[tuple[_Place, JobResult]]:
        by_id = {result.job: result for result in results}
        return [(place, by_id[place.job]) for place in self._places]


def _items(run: BulkRun, places: Sequence[int]) -> QuerySet[BulkItem]:
    return BulkItem.objects.filter(run=run, place__in=places)


def _listed(claim: Claim, order: Order, items: Sequence[BulkItem]) -> None:
    """Acts on jobs that have rows: named ones, and those of a chunk that was cut off."""
    if not _resumed(claim, order, items):
        _chunk(claim, order, items)


def _chunk(claim: Claim, order: Order, items: Sequence[BulkItem]) -> None:
    """Acts on one chunk through the runner. When it is fenced, none is settled: the leader settles them.

    Which of them were done by then is in the audit.
    """
    places = [_Place(item.place, unslug(item.job), item.why == _SECOND) for item in items]

    def write(intent: int | None) -> None:
        _items(claim.run, [place.place for place in places]).update(audit=intent)

    chunk = _Chunk(claim, places, write)
    chunk.settle(runner.perform(replace(order, jobs=tuple(map(runs.seen_of, items))), chunk.callbacks))


def _resumed(claim: Claim, order: Order, items: Sequence[BulkItem]) -> bool:
    """Settles jobs that were tried without a result, if they were done or have moved; the rest is free to be tried."""
    tried = [item for item in items if item.audit is not None]
    if not tried:
        return False
    known = _in_audit(tried)
    done = [(item, known[item.pk]) for item in tried if item.pk in known and known[item.pk].outcome is Outcome.DONE]
    moved = _moved(order, [item for item in tried if item.pk not in known])
    settled = {item.pk for item, _ in (*done, *moved)}
    with transaction.atomic():
        _settle(claim, [(item.place, result) for item, result in (*done, *moved)])
        BulkItem.objects.filter(pk__in=[item.pk for item in tried if item.pk not in settled]).update(audit=None)
    return True


def _in_audit(tried: Sequence[BulkItem]) -> dict[int, JobResult]:
    """Returns the results that the audit has, if the process that tried these jobs wrote the outcome but no items."""
    intents = {item.audit for item in tried}
    numbers = dict(AuditEntry.objects.filter(intent__in=intents, phase=audit.OUTCOME).values_list("intent", "number"))
    listed = AuditJob.objects.filter(entry_id__in=numbers).exclude(outcome__in=("", Outcome.UNKNOWN))
    outcomes = {(entry, job): Outcome(outcome) for entry, job, outcome in listed.values_list("entry", "job", "outcome")}
    return {
        item.pk: JobResult(id, outcomes[key], audit=numbers[item.audit])
        for item in tried
        if (key := (item.audit, job_key(id := unslug(item.job)))) in outcomes and item.audit is not None
    }


def _moved(order: Order, tried: Sequence[BulkItem]) -> list[tuple[BulkItem, JobResult]]:
    """Returns jobs that are not as they were when they were tried; the audit gets the outcome of all of them."""
    queue, seen = sight.scene(order.queue, order.act).queue, [runs.seen_of(item) for item in tried]
    places = [(one.id, one.state) for one in seen]
    parts = (places[at : at + sight.LOOKED_UP] for at in range(0, len(places), sight.LOOKED_UP))
    rows = [row for part in parts for row in queue.rows(part)]
    is_tried_once = ENTRIES[order.act].is_tried_once
    moved = [
        (item, JobResult(one.id, Outcome.UNKNOWN, _how(item, row), item.audit))
        for item, one, row in zip(tried, seen, rows, strict=True)
        if is_tried_once or row is None or Seen.of(row) != one
    ]
    _conclude(order, tried, {item.pk for item, _ in moved}, [result for _, result in moved])
    return moved


def _how(item: BulkItem, row: JobRow | None) -> str:
    return CUT_OFF.format(number=item.audit, state="gone" if row is None else row.state.value)


def _conclude(order: Order, tried: Sequence[BulkItem], moved: set[int], results: Sequence[JobResult]) -> None:
    """Writes the outcome of intents that have none, as far as it can be seen now."""
    why = {result.job: result.why for result in results}
    by_intent: dict[int, list[Done]] = defaultdict(list)
    for item in tried:
        id = unslug(item.job)
        one = Done(id, Outcome.UNKNOWN, why[id]) if item.pk in moved else Done(id, Outcome.UNCHANGED, NOT_DONE)
        by_intent[item.audit or 0].append(one)
    order = replace(order, jobs=tuple(map(runs.seen_of, tried)))
    for intent, done in by_intent.items():
        if not AuditEntry.objects.filter(intent=intent, phase=audit.OUTCOME).exists():
            jobs.conclude(order, intent, done)


def _settle(claim: Claim, settled: Sequence[tuple[int, JobResult]]) -> None:
    """Writes results and counters together, one UPDATE for jobs of one result. Raises Lost with nothing settled."""
    groups: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    tally: dict[str, int] = defaultdict(int)
    for place, result in settled:
        groups[result.outcome.value, result.why, result.audit].append(place)
        tally[result.outcome.value] += 1
    with transaction.atomic():
        claim.insist(**{name: F(name) + count for name, count in tally.items()}, trouble="")
        for (outcome, why, number), places in groups.items():
            items = BulkItem.objects.filter(run=claim.run, place__gte=places[0], place__lte=places[-1])
            if places[-1] - places[0] >= len(places):
                items = items.filter(place__in=places)
            items.update(outcome=outcome, why=why, audit=number)


# -- clean and drain


def _sweep(claim: Claim, order: Order, go_on: Callable[[], bool]) -> None:
    """Executes a clean or a drain step by step. Each step is counted at once, so a restart continues where it was."""
    run = claim.run
    if run.status != runs.RUNNING:
        claim.beat(sight.now(), status=runs.RUNNING, total=_expected(order))
    cursor = ""  # a restart begins anew: what was passed over is looked at once more
    while _is_wanted(claim, go_on):
        run.refresh_from_db(fields=["done"])
        rest = order.options.limit - run.done
        if order.options.limit and rest <= 0:
            _end(claim, runs.ENDED)
            return
        left = replace(order.options, limit=rest if order.options.limit else 0, cursor=cursor)
        step = runner.step(replace(order, options=left))
        cursor = step.next
        _count(claim, step)
        if step.fenced is not None:
            raise Fenced(step.fenced)
        if step.result.outcome is Outcome.UNKNOWN:
            raise Held(step.result.why)
        if step.result.outcome is not Outcome.DONE:
            _end(claim, runs.FAILED, step.result.why)
            return
        if step.is_finished:
            _end(claim, runs.ENDED)
            return


def _count(claim: Claim, step: queues.Step) -> None:
    """Adds the counts of a step to the run. `total` was a guess; it is never less than what was done."""
    done = {"done": F("done") + step.removed, "refused": F("refused") + step.skipped}
    run = BulkRun.objects.filter(pk=claim.run.pk)
    run.update(**done, trouble="")
    run.filter(total__lt=F("done") + F("refused")).update(total=F("done") + F("refused"))


def _expected(order: Order) -> int:
    preview = runner.preview(order)
    count = preview.count or 0
    return min(count, order.options.limit) if order.options.limit else count


# -- the end


def _end(claim: Claim, status: str, trouble: str = "") -> None:
    now = sight.now()
    claim.beat(now, status=status, ended_at=now, trouble=trouble)
    run = claim.run
    run.refresh_from_db()
    order = runs.order_of(run)
    told = {name: getattr(run, name) for name in ("done", "refused", "missing", "unchanged", "unknown", "total")}
    audit.note(order.actor, runs.NOTE, order.reason, {"run": run.pk, "status": status, **told}, order.queue)
