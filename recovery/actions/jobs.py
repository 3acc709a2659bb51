"""An act on some jobs of one queue, chunk by chunk: look, record the intent, do, record the outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import redis

from recovery.actions import audit, hooks, keep, record, sight
from recovery.actions.keep import Holding
from recovery.actions.sight import Judged, Scene
from recovery.connections.registry import registry
from recovery.domain.acting import Act, Done, JobResult, Options, Order, Outcome, Seen
from recovery.domain.jobs import JobRow
from recovery.errors import AccessDenied, ConfigError, Fenced, NotRecorded, StoreError, Unsupported
from recovery.reads import refusals

log = logging.getLogger(__name__)

LOOKED_AFTER = 10  # jobs looked at again afterwards; of more, the entry holds the state that the script left them in
PERHAPS = "It may or may not have happened: {error}"
UNTOLD = "What came of it could not be written into the audit."
_IN_SCRIPT = "script"  # Redis says of an error inside of one where it was
_NO_RIGHT = "no permissions to"  # and of a command that its user may not call, also inside of one
_NOT_TRIED = "Not tried: {error}"

Told = Callable[[int], None]


def perform(order: Order, scene: Scene, told: Told | None = None) -> tuple[JobResult, ...]:
    """All of them. What stops a later chunk is said of the jobs that were not tried; of the first, it is raised.

    Raises Fenced from any of them, with what all came to until then.
    """
    results: list[JobResult] = []
    size = scene.operator.chunk(order.act)
    for start in range(0, len(order.jobs), size):
        try:
            results += chunk(order, scene, order.jobs[start : start + size], told)
        except Fenced as error:
            rest = _untried(order.jobs[start + size :], error)
            raise Fenced(error.met, (*results, *error.results, *rest)) from None
        except (StoreError, NotRecorded) as error:
            if not start:
                raise
            results += _untried(order.jobs[start:], error)
            break
    return tuple(results)


def _untried(jobs: Sequence[Seen], error: Exception) -> list[JobResult]:
    why = _NOT_TRIED.format(error=error)
    return [JobResult(seen.id, Outcome.REFUSED, why) for seen in jobs]


def chunk(order: Order, scene: Scene, jobs: Sequence[Seen], told: Told | None = None) -> tuple[JobResult, ...]:
    """At most as many as one script takes; one result each, in their order.

    `told` hears the number of the intent once it is committed, before anything is done; what it raises ends the act.
    Raises NotRecorded and StoreError only while nothing was done, and Fenced with what was.
    """
    looked = sight.judged(order, scene, jobs, insists=True)
    allowed = tuple(one.judgement.seen for one in looked if one.judgement.is_allowed and one.judgement.seen)
    refused = {one.judgement.id: _refusal(one) for one in looked if not one.judgement.is_allowed}
    done = _carry_out(order, scene, looked, allowed, told) if allowed else ()
    results = refused | {result.job: result for result, _ in done}
    came_to = tuple(results[seen.id] for seen in jobs)
    fenced = [one.fenced for _, one in done if one.fenced is not None]
    if fenced:
        raise Fenced(fenced[0], came_to)
    return came_to


def _carry_out(
    order: Order, scene: Scene, looked: Sequence[Judged], allowed: Sequence[Seen], told: Told | None
) -> tuple[tuple[JobResult, Done], ...]:
    options = sight.options(order, looked)
    heard = hooks.before(registry().config, order, scene.queue, allowed)
    intent = audit.write_intent(order, record.intent(order, options, looked), [seen.id for seen in allowed])
    if told:
        _tell(told, order, intent, allowed)
    scene = sight.followed(order, scene, allowed) if len(allowed) <= LOOKED_AFTER else scene
    try:
        done = _do(order.act, scene, allowed, options)
    except Exception as error:
        conclude(order, intent, _all(allowed, Outcome.UNKNOWN, PERHAPS.format(error=repr(error))))
        raise
    taken = [one.kept for one in done if one.kept]
    holding = keep.keep(intent, taken, sight.now()) if taken else Holding()
    number = conclude(order, intent, done, holding, _after(order, scene, done))
    hooks.after(heard, order, done)
    return tuple((_result(one, number, holding), one) for one in done)


def _tell(told: Told, order: Order, intent: int, jobs: Sequence[Seen]) -> None:
    """Whoever hears of the intent may still prevent the act."""
    try:
        told(intent)
    except Exception as error:
        conclude(order, intent, _all(jobs, Outcome.REFUSED, _NOT_TRIED.format(error=str(error) or repr(error))))
        raise


def _do(act: Act, scene: Scene, jobs: Sequence[Seen], options: Options) -> tuple[Done, ...]:
    """The one call that changes something."""
    try:
        return scene.operator.on_jobs(act, scene.target, jobs, options, sight.now())
    except Unsupported as error:
        return _all(jobs, Outcome.REFUSED, str(error))
    except (StoreError, redis.RedisError) as error:
        if _is_denied(error) and scene.target.epoch is not None:
            _note(scene, error)
        return _all(jobs, *trouble(error))


def trouble(error: Exception) -> tuple[Outcome, str]:
    """A script that fails half way is not rolled back, and one that never answered may have run.

    Only an ACL that does not let us call scripts at all has surely kept everything as it was.
    """
    if _is_denied(error) and _IN_SCRIPT not in str(error):
        return Outcome.REFUSED, f"The store's ACL does not allow it: {error}"
    return Outcome.UNKNOWN, PERHAPS.format(error=error)


def _is_denied(error: Exception) -> bool:
    return isinstance(error, (AccessDenied, redis.exceptions.NoPermissionError)) or _NO_RIGHT in str(error)


def _note(scene: Scene, error: Exception) -> None:
    """For whoever predicts what the scanners do: a person touches no fence, and may be allowed what they are not."""
    why = error.reason if isinstance(error, StoreError) else str(error)
    with suppress(ConfigError, StoreError):
        refusals.note(registry().state(), scene.target.ref, why, was_tried=True)


def conclude(
    order: Order,
    intent: int,
    done: Sequence[Done],
    holding: Holding = Holding(),  # noqa: B008 -- frozen
    after: dict[str, JobRow] | None = None,
) -> int | None:
    """Writes the outcome; its number. None when the audit takes it no more: it is done all the same."""
    body = record.outcome(done, holding.ids, after or {})
    if holding.trouble:
        body["undo"] = holding.trouble
    try:
        return audit.write_outcome(intent, order, body, {one.id: one.outcome for one in done})
    except NotRecorded as error:
        log.error("the outcome of #%d is not in the audit: %s", intent, error)  # noqa: TRY400 -- told, not traced
        return None


def _after(order: Order, scene: Scene, done: Sequence[Done]) -> dict[str, JobRow]:
    """How those that were changed look now; nothing when there are many, or when the store does not say."""
    changed = [one for one in done if one.outcome is Outcome.DONE and one.state is not None]
    if not changed or len(changed) > LOOKED_AFTER:
        return {}
    known = scene.target.following.rows() if scene.target.following else {}
    found = {one.id: row for one in changed if (row := known.get(one.id))}
    with suppress(StoreError):
        wanted = [(one.id, one.state) for one in changed if one.state is not None and one.id not in known]
        found |= (
            {row.id: row for row in scene.queue.rows(wanted, by_script=order.epoch is None) if row is not None}
            if wanted
            else {}
        )
    return found


def _all(jobs: Sequence[Seen], outcome: Outcome, why: str) -> tuple[Done, ...]:
    return tuple(Done(seen.id, outcome, why) for seen in jobs)


def _refusal(one: Judged) -> JobResult:
    return JobResult(one.judgement.id, one.judgement.outcome, one.judgement.why)


def _result(done: Done, number: int | None, holding: Holding) -> JobResult:
    can_restore = done.id in holding.ids
    return JobResult(done.id, done.outcome, " ".join(_remarks(done, number, holding)), number, can_restore)


def _remarks(done: Done, number: int | None, holding: Holding) -> Iterator[str]:
    if done.why:
        yield done.why
    if number is None:
        yield UNTOLD
    if done.kept and done.id not in holding.ids:
        yield f"It cannot be restored. {holding.trouble}".strip()
