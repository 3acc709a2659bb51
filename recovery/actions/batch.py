"""The work on a bulk run until its time is up: gather, then chunk after chunk.

What a run does is safe to repeat: an item has its outcome written after its chunk, and until then the number of the
intent. A chunk that was cut off is looked at again, and what moved meanwhile is not touched: it may have been us.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from django.db import transaction
from django.db.models import F, QuerySet

from recovery.actions import audit, gather, jobs, queues, runner, runs, sight
from recovery.actions.catalog import ENTRIES
from recovery.actions.claims import Claim
from recovery.domain.acting import Done, JobResult, Order, Outcome, Seen
from recovery.domain.chain import job_key
from recovery.domain.jobs import JobRow
from recovery.domain.mandate import Mandate
from recovery.domain.refs import slug, unslug
from recovery.errors import Fenced
from recovery.models import AuditEntry, AuditJob, BulkItem, BulkRun

CUT_OFF = "It was tried in #{number}, which was cut off; it is {state} now. It may have been this run."
NOT_DONE = "It was cut off, and looked at again: nothing was done to this job."
# Kept in an item's `why` while it has no outcome: a job is tried twice at most, or a script that fails would fail
# for ever, each time with two more entries in the audit.
_SECOND = "second try"


class Held(Exception):
    """It cannot go on for now; the text says why."""


def work(claim: Claim, go_on: Callable[[], bool], mandate: Mandate | None = None) -> None:
    """Until it is over, or `go_on` says no. `mandate`: of the scheduler that does it.

    Raises Lost, Held, Fenced, StoreError, NotRecorded, Unsupported, Missing.
    """
    run = claim.run
    if run.started_at is None:
        claim.beat(sight.now(), started_at=sight.now())
    order = runs.order_of(run)
    if mandate:
        if rival := mandate.rival(order.queue.deployment):
            raise Held(rival)
        order = replace(order, epoch=mandate.epoch, installation=mandate.installation)
    scene = sight.scene(order.queue, order.act, order.epoch, order.installation)
    scene.operator.fence(scene.target)  # what one before us may still send comes too late, so what we see stays true
    if ENTRIES[order.act].in_steps:
        _sweep(claim, order, go_on)
        return
    selection = runs.selection_of(run)
    if selection and run.status in (runs.WAITING, runs.GATHERING) and not _gather(claim, order, selection, go_on):
        return
    if run.status != runs.RUNNING:
        claim.beat(sight.now(), status=runs.RUNNING)
    while _is_wanted(claim, go_on):
        items = list(_left(run)[: scene.operator.chunk(order.act)])
        if not items:
            _end(claim, runs.ENDED)
            return
        if not _resumed(claim, order, items):
            _chunk(claim, order, items)


def _left(run: BulkRun) -> QuerySet[BulkItem]:
    return BulkItem.objects.filter(run=run, outcome="").order_by("place")


def _is_wanted(claim: Claim, go_on: Callable[[], bool]) -> bool:
    """Between chunks: nobody asked to stop, the claim is still ours, and there is time."""
    if BulkRun.objects.filter(pk=claim.run.pk, wants_stop=True).exists():
        _end(claim, runs.STOPPED)
        return False
    claim.beat(sight.now())
    return go_on()


def _gather(claim: Claim, order: Order, selection: gather.Selection, go_on: Callable[[], bool]) -> bool:
    """Window after window; the cursor and its items are written together. True when all are there."""
    run = claim.run
    scene = sight.scene(order.queue, order.act)
    known = set(BulkItem.objects.filter(run=run).values_list("job", flat=True))
    claim.beat(sight.now(), status=runs.GATHERING)
    while _is_wanted(claim, go_on):
        part = gather.part(scene, selection, run.cursor)
        fresh = [seen for seen in part.jobs if slug(seen.id) not in known]
        known.update(slug(seen.id) for seen in fresh)
        with transaction.atomic():
            runs.add(run, fresh)
            claim.beat(sight.now(), cursor=part.next, total=run.total)
        if not part.next:
            return True
    return False


# -- chunks


def _chunk(claim: Claim, order: Order, items: Sequence[BulkItem]) -> None:
    """One chunk through the door; each job's result into its item. When it is fenced, none: whoever leads settles them.

    Which of them were done by then is in the audit.
    """
    seen = tuple(map(runs.seen_of, items))
    results = runner.perform(replace(order, jobs=seen), lambda intent: _mark(claim, items, intent))
    by_id = {result.job: result for result in results}
    settled = [(item, by_id[one.id]) for item, one in zip(items, seen, strict=True)]
    cut_off = [item for item, result in settled if result.outcome is Outcome.UNKNOWN and item.why != _SECOND]
    _settle(claim, [(item, result) for item, result in settled if item not in cut_off])
    if cut_off:
        why = next(result.why for item, result in settled if item in cut_off)
        BulkItem.objects.filter(pk__in=[item.pk for item in cut_off]).update(why=_SECOND)
        raise Held(why)


def _mark(claim: Claim, items: Sequence[BulkItem], intent: int) -> None:
    """Before anything is done: whoever comes after us knows in which entry these were tried. Raises Lost."""
    with transaction.atomic():
        claim.insist()
        BulkItem.objects.filter(pk__in=[item.pk for item in items]).update(audit=intent)


def _resumed(claim: Claim, order: Order, items: Sequence[BulkItem]) -> bool:
    """Of those that were tried and have no result: what was done or moved is settled, the rest is free to be tried."""
    tried = [item for item in items if item.audit is not None]
    if not tried:
        return False
    known = _in_audit(tried)
    done = [(item, known[item.pk]) for item in tried if item.pk in known and known[item.pk].outcome is Outcome.DONE]
    moved = _moved(order, [item for item in tried if item.pk not in known])
    settled = {item.pk for item, _ in (*done, *moved)}
    with transaction.atomic():
        _settle(claim, [*done, *moved])
        BulkItem.objects.filter(pk__in=[item.pk for item in tried if item.pk not in settled]).update(audit=None)
    return True


def _in_audit(tried: Sequence[BulkItem]) -> dict[int, JobResult]:
    """What is known of them for sure: whoever tried them still wrote the outcome, and no more than that."""
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
    """Those that are not as they were when they were tried; the audit is told what all of them came to."""
    queue, seen = sight.scene(order.queue, order.act).queue, [runs.seen_of(item) for item in tried]
    rows = queue.rows([(one.id, one.state) for one in seen]) if seen else ()
    moved = [
        (item, JobResult(one.id, Outcome.UNKNOWN, _how(item, row), item.audit))
        for item, one, row in zip(tried, seen, rows, strict=True)
        if row is None or Seen.of(row) != one
    ]
    _conclude(order, tried, {item.pk for item, _ in moved}, [result for _, result in moved])
    return moved


def _how(item: BulkItem, row: JobRow | None) -> str:
    return CUT_OFF.format(number=item.audit, state="gone" if row is None else row.state.value)


def _conclude(order: Order, tried: Sequence[BulkItem], moved: set[int], results: Sequence[JobResult]) -> None:
    """The outcome of intents that have none, as far as it can be seen now."""
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


def _settle(claim: Claim, settled: Sequence[tuple[BulkItem, JobResult]]) -> None:
    """Results and counters together, one UPDATE for all that came to the same. Raises Lost, and nothing is settled."""
    groups: dict[tuple[str, str, int | None], list[int]] = defaultdict(list)
    tally: dict[str, int] = defaultdict(int)
    for item, result in settled:
        groups[result.outcome.value, result.why, result.audit].append(item.pk)
        tally[result.outcome.value] += 1
    with transaction.atomic():
        claim.insist(**{name: F(name) + count for name, count in tally.items()}, trouble="")
        for (outcome, why, number), keys in groups.items():
            BulkItem.objects.filter(pk__in=keys).update(outcome=outcome, why=why, audit=number)


# -- clean and drain


def _sweep(claim: Claim, order: Order, go_on: Callable[[], bool]) -> None:
    """Step after step. What a step took away is counted at once, so a restart goes on where it was."""
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
    """`total` was a guess; it is never less than what was done."""
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
