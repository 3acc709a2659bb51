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

from recovery.actions import execute_jobs, execute_queue, precheck, runner
from recovery.actions.audit import audit_log
from recovery.actions.bulk import job_selection, run_rows
from recovery.actions.bulk.run_lock import BulkRunLock, BulkRunTaken
from recovery.actions.catalog import ENTRIES
from recovery.actions.execute_jobs import ActionCallbacks
from recovery.domain.actions.types import Action, ActionCommand, ExpectedJob, JobResult, Outcome, ScriptOutcome
from recovery.domain.audit.hash_chain import job_key
from recovery.domain.identifiers import slug, unslug
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.errors import Fenced
from recovery.models import AuditEntry, AuditJob, BulkItem, BulkRun

CUT_OFF = "It was tried in #{number}, which was interrupted; it is {state} now. This run may have caused that."
NOT_DONE = "It was interrupted and checked again: this job was not changed."
# Kept in an item's `why` while it has no outcome: a job is tried twice at most, or a script that fails would fail
# for ever, each time with two more entries in the audit.
_SECOND = "second try"


class BulkRunBlocked(Exception):
    """Raised when a bulk run cannot continue for now; the text says why."""


class BlockedByConsole(BulkRunBlocked):
    """Raised when another console acts there. Its end is known without asking the store: it may be looked for often."""


@dataclass(slots=True)
class RecordedJobs:
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

    def of(self, claim: BulkRunLock) -> RecordedJobs:
        """Returns this, or reads the rows again if another process has worked on the run meanwhile."""
        if self.beat is not None and self.beat == claim.before:
            return self
        jobs = list(BulkItem.objects.filter(run=claim.run).values_list("job", flat=True))
        return RecordedJobs(set(jobs), len(jobs))


def execute_run(
    claim: BulkRunLock,
    go_on: Callable[[], bool],
    leader_token: LeaderToken | None = None,
    found: RecordedJobs | None = None,
) -> RecordedJobs:
    """Executes a run until it ended or `go_on` returns False. `leader_token`: the scheduler's; `found`: from before.

    Raises Lost, Held, Fenced, StoreError, NotRecorded, Unsupported, Missing.
    """
    run = claim.run
    if run.started_at is None:
        claim.beat(precheck.now(), started_at=precheck.now())
    order = run_rows.order_of(run)
    if leader_token:
        if rival := leader_token.rival(order.queue.deployment):
            raise BlockedByConsole(rival)
        order = replace(order, epoch=leader_token.epoch, installation=leader_token.installation)
    context = precheck.build_context(order.queue, order.act, order.epoch, order.installation)
    context.operator.fence(context.target)  # earlier leaders are refused from now on, so what we read stays true
    if ENTRIES[order.act].in_steps:
        _sweep(claim, order, go_on)
        return RecordedJobs()
    selection, size = run_rows.selection_of(run), context.operator.chunk(order.act)
    walk = (
        _Walk(claim, order, selection, (found or RecordedJobs()).of(claim))
        if selection and run.cursor != run_rows.ALL
        else None
    )
    status = run_rows.GATHERING if walk and run.total <= walk.found.count else run_rows.RUNNING
    if run.status != status:
        claim.beat(precheck.now(), status=status)
    has_left = True
    while _is_wanted(claim, go_on):
        items = list(_left(run)[:size]) if has_left else []
        if items:
            _listed(claim, order, items)
            continue
        has_left = False
        if walk is None or run.cursor == run_rows.ALL:
            _end(claim, run_rows.ENDED)
            break
        walk.step(size)
    return replace(walk.found, beat=run.beat_at) if walk else RecordedJobs()


def _left(run: BulkRun) -> QuerySet[BulkItem]:
    return BulkItem.objects.filter(run=run, outcome="").order_by("place")


def _is_wanted(claim: BulkRunLock, go_on: Callable[[], bool]) -> bool:
    """Returns True between chunks if no stop was requested, the claim is still ours, and there is time. Raises Lost."""
    if claim.wants_stop(precheck.now()):
        _end(claim, run_rows.STOPPED)
        return False
    return go_on()


class _Walk:
    """Reads the jobs of a selection window by window, and acts on each window before it reads the next."""

    def __init__(
        self, claim: BulkRunLock, order: ActionCommand, selection: job_selection.BulkSelection, found: RecordedJobs
    ) -> None:
        self._claim, self._order, self._selection, self.found = claim, order, selection, found
        self._has_news = bool(claim.run.cursor)  # jobs were recorded since the list was last begun at its first job

    def step(self, size: int) -> None:
        """Reads one window and acts on it. Its jobs get rows in the transaction of the intent of their attempt."""
        run, order = self._claim.run, self._order
        context = precheck.build_context(order.queue, order.act, order.epoch, order.installation)
        part = job_selection.read_page(context, self._selection, run.cursor, size, insists=True)
        rows = [row for row in part.rows if slug(row.id) not in self.found.jobs]
        if not rows:
            self._go_on(context, part, part.next)
            return
        seen, first = tuple(map(ExpectedJob.of, rows)), self.found.count
        order = replace(order, jobs=seen)
        verdicts = part.verdicts or precheck.verdicts(order.act, context, rows, insists=True)
        looked = precheck.check_rows(order, context, seen, rows, verdicts)
        places = [_Place(first + at, one.id) for at, one in enumerate(seen)]
        chunk = _Chunk(self._claim, places, lambda intent: run_rows.put(run, seen, first, intent))
        try:
            chunk.settle(runner.perform_prechecked(order, context, looked, chunk.callbacks))
        finally:
            if chunk.is_written:
                self.found.add(slug(one.id) for one in seen)
                self._has_news = True
        stays = {one.judgement.id for one in looked if not one.judgement.is_allowed}
        self._go_on(context, part, part.next_without({one.id for one in seen} - stays))

    def _go_on(self, context: precheck.ActionContext, part: job_selection.SelectionPage, cursor: str) -> None:
        """Moves the cursor on; until then a window is read again, and its known jobs are skipped.

        Workers take jobs from a list meanwhile, and some may be passed over: it is read again until no new job appears.
        """
        run, found = self._claim.run, self.found.count
        guess = run.total if run.cursor else job_selection.expected_count(context, self._selection, part.total) or 0
        facts = {"cursor": cursor, "total": max(found, guess), "status": run_rows.RUNNING}
        if not part.next:
            is_over = not self._has_news or self._selection.state not in _LISTS
            facts |= {"cursor": run_rows.ALL if is_over else "", "total": found}
            self._has_news = False
        elif guess <= found:
            facts["status"] = run_rows.GATHERING
        self._claim.beat(precheck.now(), **facts)


_LISTS = frozenset({JobState.ACTIVE, JobState.WAITING, JobState.PAUSED})


# -- chunks


class _Place(NamedTuple):
    """A job of a run. `is_second`: it was tried before, and what came of it was not known."""

    place: int
    job: str
    is_second: bool = False


class _Chunk:
    """Jobs of a run that are done together. `write` marks them with the intent in which they are tried."""

    def __init__(self, claim: BulkRunLock, places: Sequence[_Place], write: Callable[[int | None], None]) -> None:
        self._claim, self._places, self._write = claim, places, write
        self._is_tried_once = ENTRIES[Action(claim.run.act)].is_tried_once
        self._settled: tuple[JobResult, ...] | None = None
        self._lost: BulkRunTaken | None = None
        self.is_written = False
        self.callbacks = ActionCallbacks(self._mark, self._conclude)

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
            raise BulkRunBlocked(cut_off[0].why)

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
        except BulkRunTaken as lost:
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


def _listed(claim: BulkRunLock, order: ActionCommand, items: Sequence[BulkItem]) -> None:
    """Acts on jobs that have rows: named ones, and those of a chunk that was cut off."""
    if not _resumed(claim, order, items):
        _chunk(claim, order, items)


def _chunk(claim: BulkRunLock, order: ActionCommand, items: Sequence[BulkItem]) -> None:
    """Acts on one chunk through the runner. When it is fenced, none is settled: the leader settles them.

    Which of them were done by then is in the audit.
    """
    places = [_Place(item.place, unslug(item.job), item.why == _SECOND) for item in items]

    def write(intent: int | None) -> None:
        _items(claim.run, [place.place for place in places]).update(audit=intent)

    chunk = _Chunk(claim, places, write)
    chunk.settle(runner.perform(replace(order, jobs=tuple(map(run_rows.seen_of, items))), chunk.callbacks))


def _resumed(claim: BulkRunLock, order: ActionCommand, items: Sequence[BulkItem]) -> bool:
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
    numbers = dict(
        AuditEntry.objects.filter(intent__in=intents, phase=audit_log.OUTCOME).values_list("intent", "number")
    )
    listed = AuditJob.objects.filter(entry_id__in=numbers).exclude(outcome__in=("", Outcome.UNKNOWN))
    outcomes = {(entry, job): Outcome(outcome) for entry, job, outcome in listed.values_list("entry", "job", "outcome")}
    return {
        item.pk: JobResult(id, outcomes[key], audit=numbers[item.audit])
        for item in tried
        if (key := (item.audit, job_key(id := unslug(item.job)))) in outcomes and item.audit is not None
    }


def _moved(order: ActionCommand, tried: Sequence[BulkItem]) -> list[tuple[BulkItem, JobResult]]:
    """Returns jobs that are not as they were when they were tried; the audit gets the outcome of all of them."""
    queue, seen = precheck.build_context(order.queue, order.act).queue, [run_rows.seen_of(item) for item in tried]
    places = [(one.id, one.state) for one in seen]
    parts = (places[at : at + precheck.LOOKED_UP] for at in range(0, len(places), precheck.LOOKED_UP))
    rows = [row for part in parts for row in queue.rows(part)]
    is_tried_once = ENTRIES[order.act].is_tried_once
    moved = [
        (item, JobResult(one.id, Outcome.UNKNOWN, _how(item, row), item.audit))
        for item, one, row in zip(tried, seen, rows, strict=True)
        if is_tried_once or row is None or ExpectedJob.of(row) != one
    ]
    _conclude(order, tried, {item.pk for item, _ in moved}, [result for _, result in moved])
    return moved


def _how(item: BulkItem, row: JobRow | None) -> str:
    return CUT_OFF.format(number=item.audit, state="gone" if row is None else row.state.value)


def _conclude(order: ActionCommand, tried: Sequence[BulkItem], moved: set[int], results: Sequence[JobResult]) -> None:
    """Writes the outcome of intents that have none, as far as it can be seen now."""
    why = {result.job: result.why for result in results}
    by_intent: dict[int, list[ScriptOutcome]] = defaultdict(list)
    for item in tried:
        id = unslug(item.job)
        one = (
            ScriptOutcome(id, Outcome.UNKNOWN, why[id])
            if item.pk in moved
            else ScriptOutcome(id, Outcome.UNCHANGED, NOT_DONE)
        )
        by_intent[item.audit or 0].append(one)
    order = replace(order, jobs=tuple(map(run_rows.seen_of, tried)))
    for intent, done in by_intent.items():
        if not AuditEntry.objects.filter(intent=intent, phase=audit_log.OUTCOME).exists():
            execute_jobs.record_outcome(order, intent, done)


def _settle(claim: BulkRunLock, settled: Sequence[tuple[int, JobResult]]) -> None:
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


def _sweep(claim: BulkRunLock, order: ActionCommand, go_on: Callable[[], bool]) -> None:
    """Executes a clean or a drain step by step. Each step is counted at once, so a restart continues where it was."""
    run = claim.run
    if run.status != run_rows.RUNNING:
        claim.beat(precheck.now(), status=run_rows.RUNNING, total=_expected(order))
    cursor = ""  # a restart begins anew: what was passed over is looked at once more
    while _is_wanted(claim, go_on):
        run.refresh_from_db(fields=["done"])
        rest = order.options.limit - run.done
        if order.options.limit and rest <= 0:
            _end(claim, run_rows.ENDED)
            return
        left = replace(order.options, limit=rest if order.options.limit else 0, cursor=cursor)
        step = runner.step(replace(order, options=left))
        cursor = step.next
        _count(claim, step)
        if step.fenced is not None:
            raise Fenced(step.fenced)
        if step.result.outcome is Outcome.UNKNOWN:
            raise BulkRunBlocked(step.result.why)
        if step.result.outcome is not Outcome.DONE:
            _end(claim, run_rows.FAILED, step.result.why)
            return
        if step.is_finished:
            _end(claim, run_rows.ENDED)
            return


def _count(claim: BulkRunLock, step: execute_queue.SweepStep) -> None:
    """Adds the counts of a step to the run. `total` was a guess; it is never less than what was done."""
    done = {"done": F("done") + step.removed, "refused": F("refused") + step.skipped}
    run = BulkRun.objects.filter(pk=claim.run.pk)
    run.update(**done, trouble="")
    run.filter(total__lt=F("done") + F("refused")).update(total=F("done") + F("refused"))


def _expected(order: ActionCommand) -> int:
    preview = runner.preview(order)
    count = preview.count or 0
    return min(count, order.options.limit) if order.options.limit else count


# -- the end


def _end(claim: BulkRunLock, status: str, trouble: str = "") -> None:
    now = precheck.now()
    claim.beat(now, status=status, ended_at=now, trouble=trouble)
    run = claim.run
    run.refresh_from_db()
    order = run_rows.order_of(run)
    told = {name: getattr(run, name) for name in ("done", "refused", "missing", "unchanged", "unknown", "total")}
    audit_log.note(order.actor, run_rows.NOTE, order.reason, {"run": run.pk, "status": status, **told}, order.queue)
