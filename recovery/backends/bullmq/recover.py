"""Requeues, fails and releases active jobs whose worker is gone. One script for so many jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain

from recovery.backends.base import ACTIVE_CHUNK, Target
from recovery.backends.bullmq import fail_plan, scripts
from recovery.backends.bullmq.keys import BullMQKeys
from recovery.backends.bullmq.scripts import Answer
from recovery.backends.bullmq.versions import LAYOUT, BullMQTraits
from recovery.backends.redis_common import row_refresh
from recovery.backends.redis_common.layout import QueueContext
from recovery.backends.redis_common.script_batches import failure
from recovery.domain.actions.types import ActionEffects, ActionOptions, ExpectedJob, Outcome, ScriptOutcome
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.errors import StoreError
from recovery.stores.redis.scripts import Part

# -- refusals
# Says in words how a refused job is now: where it is, who holds it, what came in between.


DATA_MISSING = "Its job data is missing: only its id is left in the list of active jobs. Failing it removes the id."
ENDED = "Its lock has expired since. It can be requeued or failed now."
UNTOLD = "It has changed since it was shown, and its current state cannot be read."
GONE = "The job is gone: there is no such job any more."
_WAITING = (JobState.WAITING, JobState.PAUSED, JobState.PRIORITIZED)


def explain_refused(
    target: Target, answers: Mapping[str, Answer], jobs: Sequence[ExpectedJob]
) -> dict[str, ScriptOutcome]:
    """Returns one refusal for each of these jobs; `answers` is what the script said of them, in one word."""
    context = QueueContext(target.ref, BullMQKeys(target.ref.base), LAYOUT)
    try:
        wanted = [(seen.id, JobState.ACTIVE) for seen in jobs]
        rows = row_refresh.read(target.wire, context, wanted, by_script=True) if jobs else ()
    except StoreError:  # others of the same call were changed, and that is known
        return {seen.id: ScriptOutcome(seen.id, Outcome.REFUSED, UNTOLD) for seen in jobs}
    return {seen.id: _as_it_is(seen, row, answers[seen.id]) for seen, row in zip(jobs, rows, strict=True)}


def _as_it_is(seen: ExpectedJob, row: JobRow | None, word: Answer) -> ScriptOutcome:
    if row is None:
        return ScriptOutcome(seen.id, Outcome.MISSING, GONE)
    if row.missing and row.state is JobState.ACTIVE:
        return ScriptOutcome(seen.id, Outcome.REFUSED, DATA_MISSING, JobState.ACTIVE)
    if row.state is not JobState.ACTIVE:
        return ScriptOutcome(seen.id, Outcome.REFUSED, _elsewhere(row), row.state)
    if _is_another_run(seen, row):
        return ScriptOutcome(
            seen.id, Outcome.REFUSED, f"Another worker has started it since{_hold(row.lock)}.", JobState.ACTIVE
        )
    if row.lock is not None:
        return ScriptOutcome(seen.id, Outcome.REFUSED, _locked(seen, row.lock), JobState.ACTIVE)
    return ScriptOutcome(seen.id, Outcome.REFUSED, _unlocked(seen, row, word), JobState.ACTIVE)


def _elsewhere(row: JobRow) -> str:
    if row.state is JobState.UNKNOWN:
        return "It is no longer active, and its current state is unknown."
    place = f"in wait now ({row.state})" if row.state in _WAITING else f"{row.state} now"
    return f"It is {place}, not active any more."


def _is_another_run(seen: ExpectedJob, row: JobRow) -> bool:
    return (row.processed_at, row.starts, row.attempts) != (seen.processed_at, seen.starts, seen.attempts)


def _hold(lock: JobLock | None) -> str:
    return f", and holds it{_expiry(lock)}" if lock else ""


def _expiry(lock: JobLock) -> str:
    return " (its lock never expires)" if lock.ttl is None else f" (expires in {round(lock.ttl / 1000)} s)"


def _locked(seen: ExpectedJob, lock: JobLock) -> str:
    if seen.token is None:
        return f"It is locked again{_expiry(lock)}."
    return f"It is locked{_expiry(lock)}." if seen.token == lock.token else f"It has another lock now{_expiry(lock)}."


def _unlocked(seen: ExpectedJob, row: JobRow, word: Answer) -> str:
    if word == "children":
        return "It still waits for children, and this BullMQ version cannot fail a job that does."
    if row.stalls != seen.stalls:
        return "It was recovered and taken by a worker again: it is active, without a lock."
    if seen.token is not None:
        return ENDED
    return "It changed during the action. It is active, without a lock: try again."


# -- recover


STALLED = "job stalled more than allowable limit"  # the library's own words

_ONCE = (
    "Up to BullMQ 4 a job is briefly active without a lock when a worker takes it. "
    "It must be seen without one twice, at least one stalled interval apart."
)
_DEFERRED = "It is in wait: the next worker that takes it fails it at once, without running it."
_DROPPED = "Its job data was missing: its id was removed from the list of active jobs."
_REMOVED = "It failed, and was removed by its own option removeOnFail."
_LEFT = "Its lock is removed, and it stays active until the stalled check of a live worker finds it."
_NEVER_LOCKED = "It was shown without a lock, so there is none to release."

Answers = Mapping[str, scripts.Answer]  # what the script said of each job, in one word


def requeue(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Puts jobs back to wait, where the library's own recovery would put them."""
    if not _is_proven(traits, options):
        return tuple(_refusal(seen, _ONCE) for seen in jobs)
    answers = _recover(target, traits, jobs, options, "")
    return _told(target, jobs, answers, {word: ("", state) for word, state in _BACK.items()})


def fail(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Fails jobs as stalled ones fail: by the worker that takes them next where the version does so, else at once."""
    if not _is_proven(traits, options):
        return tuple(_refusal(seen, _ONCE) for seen in jobs)
    if not fails_here(traits, options):
        answers = _recover(target, traits, jobs, ActionOptions(), options.message or STALLED)
        deferred = {word: (_DEFERRED, state) for word, state in _BACK.items()}
        return _told(target, jobs, answers, {**deferred, "dropped": (_DROPPED, None)})
    return _fail_here(target, traits, jobs, options, now)


def fails_here(traits: BullMQTraits, options: ActionOptions) -> bool:
    """Returns True if a job fails at once, and is not left to the worker that takes it next."""
    return options.directly or not traits.has("defers_stalls")


def effects_of_failing(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions
) -> dict[str, ActionEffects]:
    """Returns which parents hear of each failure."""
    everywhere = replace(options, other_queues=True, affected=None)
    plans = fail_plan.plans(target, traits, jobs, everywhere, options.message or STALLED)
    return {
        plan.seen.id: ActionEffects(fail_plan.affected(target, plan.parents), refusal=plan.refusal) for plan in plans
    }


def release(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    """Deletes the lock that was shown, and no other."""
    locked = [seen for seen in jobs if seen.token]
    flags = map(int, (options.requeue, options.counts_as_stall, options.reset_stalls))
    each = {seen.id: (encode_name(seen.id), encode_name(seen.token or ""), *scripts.seen_args(seen)) for seen in locked}
    answers = _ask(target, "release-jobs", _parts(locked, (traits.for_script(), *flags), each))
    done = {"released": (_LEFT, JobState.ACTIVE)} | {word: ("", state) for word, state in _BACK.items()}
    told = {one.id: one for one in _told(target, locked, answers, done)}
    return tuple(_if_ended(told[seen.id], options) if seen.token else _refusal(seen, _NEVER_LOCKED) for seen in jobs)


def _if_ended(done: ScriptOutcome, options: ActionOptions) -> ScriptOutcome:
    """Returns unchanged for a lock that has expired by itself, as a release wants; a requeue must be asked for anew."""
    has_ended = done.why == ENDED and not options.requeue
    return replace(done, outcome=Outcome.UNCHANGED) if has_ended else done


# Words of the scripts for a job that went back to work, and where it is then.
_BACK = {state.value: state for state in (JobState.WAITING, JobState.PAUSED, JobState.PRIORITIZED)}


def _is_proven(traits: BullMQTraits, options: ActionOptions) -> bool:
    """Returns True if one read is enough to know that no worker holds a job that has no lock."""
    return traits.locks_when_taking or options.is_late


def _recover(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, reason: str
) -> Answers:
    flags = map(int, (options.counts_as_stall, options.reset_stalls))
    head: tuple[Part, ...] = (traits.for_script(), *flags, reason.encode("utf-8", "replace"))
    each = {seen.id: (encode_name(seen.id), *scripts.seen_args(seen)) for seen in jobs}
    return _ask(target, "requeue-jobs", _parts(jobs, head, each))


def _fail_here(
    target: Target, traits: BullMQTraits, jobs: Sequence[ExpectedJob], options: ActionOptions, now: int
) -> tuple[ScriptOutcome, ...]:
    reason = options.message or STALLED
    plans = fail_plan.plans(target, traits, jobs, options, reason)
    able = [plan for plan in plans if not plan.refusal]
    args = fail_plan.arguments(traits, able, options, reason, now)
    parts = [([plan.seen for plan in able], args)] if able else []
    heard, answers = _counted(_ask(target, "fail-jobs", parts, fail_plan.keys(target, able)))
    done = {"failed": ("", JobState.FAILED), "removed": (_REMOVED, None), "dropped": (_DROPPED, None)}
    others = {plan.seen.id: _refusal(plan.seen, fail_plan.OTHERS) for plan in able if answers[plan.seen.id] == "others"}
    tried = [plan.seen for plan in able if plan.seen.id not in others]
    told = {one.id: one for one in _told(target, tried, answers, done)} | others
    return tuple(
        _refusal(plan.seen, plan.refusal)
        if plan.refusal
        else _with_note(target, told[plan.seen.id], plan, heard[plan.seen.id])
        for plan in plans
    )


def _counted(answers: Answers) -> tuple[dict[str, int], Answers]:
    """Splits the answers into how many parents heard of each job, which follows the word, and the words alone."""
    parts = {id: str(word).partition(" ") if isinstance(word, str) else (word, "", "") for id, word in answers.items()}
    return {id: int(count or 0) for id, (_, _, count) in parts.items()}, {id: part[0] for id, part in parts.items()}


def _with_note(target: Target, done: ScriptOutcome, plan: fail_plan.FailPlan, heard: int) -> ScriptOutcome:
    if done.outcome is not Outcome.DONE:
        return done
    why = plan.note if plan.note and done.state is JobState.FAILED and not done.why else done.why
    return replace(done, why=why, affected=fail_plan.affected(target, plan.parents[:heard]))


_Part = tuple[Sequence[ExpectedJob], Sequence[Part]]  # the jobs of one script, and its arguments


def _parts(jobs: Sequence[ExpectedJob], head: Sequence[Part], each: Mapping[str, Sequence[Part]]) -> list[_Part]:
    some = (jobs[at : at + ACTIVE_CHUNK] for at in range(0, len(jobs), ACTIVE_CHUNK))
    return [(part, (*head, *chain.from_iterable(each[seen.id] for seen in part))) for part in some]


def _ask(target: Target, name: str, parts: Sequence[_Part], more: Sequence[bytes] = ()) -> Answers:
    queue, own = BullMQKeys(target.ref.base), scripts.queue_keys(target.ref.base)
    runs = [((*own, *(queue.job(encode_name(seen.id)) for seen in jobs), *more), args) for jobs, args in parts]
    jobs = [seen for some, _ in parts for seen in some]
    words = scripts.run_each_word(target, name, runs, [len(some) for some, _ in parts])
    # Backwards: of a job that is named twice the first answer counts, as it is the one that did something.
    return dict(zip((seen.id for seen in reversed(jobs)), reversed(words), strict=True))


def _told(
    target: Target, jobs: Sequence[ExpectedJob], answers: Answers, done: Mapping[str, tuple[str, JobState | None]]
) -> tuple[ScriptOutcome, ...]:
    """Returns one answer a job: `done` has the words for success, all others are refusals."""
    refused = {seen.id: found for seen in jobs if (found := failure(seen, answers[seen.id]))}
    others = [seen for seen in jobs if answers[seen.id] not in done and seen.id not in refused]
    refused |= explain_refused(target, answers, others)
    return tuple(
        refused.get(seen.id) or ScriptOutcome(seen.id, Outcome.DONE, *done[str(answers[seen.id])]) for seen in jobs
    )


def _refusal(seen: ExpectedJob, why: str) -> ScriptOutcome:
    return ScriptOutcome(seen.id, Outcome.REFUSED, why, JobState.ACTIVE)
