"""Safety limits of auto-retry, kept in the database: the budget of a queue, its breakers, and the past of each job.

Each step is kept before what it allows is done, so that a process which dies in between has counted too much rather
than too little. `now` is the time of the database's clock, unless it is given. What cannot be kept raises NotRecorded:
then nothing may be done. A row that was lost or cannot be read counts as used up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from django.db import Error, transaction

from recovery.actions.audit import INTENT
from recovery.actions.release import release
from recovery.actions.swap import Change, swap, swap_one, swap_together
from recovery.connections import clock
from recovery.domain import redact
from recovery.domain.acting import Act
from recovery.domain.ages import DAY, HOUR, MINUTE, SECOND
from recovery.domain.breaker import Breaker, Ended, Out
from recovery.domain.budget import Grant, Limit
from recovery.domain.chain import job_key
from recovery.domain.purse import Purse
from recovery.domain.refs import QueueRef
from recovery.domain.retry import Past
from recovery.errors import NotRecorded
from recovery.models import AuditEntry
from recovery.reads import brake_rows
from recovery.reads.brake_rows import BREAKER, BUDGET, PARDON, PAST, STORE, Kind, Place, breaker_key
from recovery.reads.relaunched import End

__all__ = [
    "End",
    "Going",
    "free_at",
    "give_back",
    "out",
    "past_of",
    "prune",
    "relaunched",
    "release",
    "room",
    "settled",
    "take",
    "withdrawn",
]

# Errors of one queue that have breakers of their own: beyond them, the one for all errors counts.
BREAKERS = 500
# For how long a row is kept after its last write. How often a job was auto-retried in all has to outlive the job.
_KEPT: Mapping[Kind[Any], int] = {
    BUDGET: DAY,
    PARDON: 92 * DAY,  # longer than the incidents that it covers
    BREAKER: 30 * DAY,
    STORE: 30 * DAY,
    PAST: 90 * DAY,
}


@dataclass(frozen=True, slots=True)
class Going:
    """A job that is to be auto-retried: the signature of the error that it failed with, when it failed, and when it was
    added; 0: unknown.
    """

    signature: str
    failed_at: int = 0
    born: int = 0


# -- the budget


def take(queue: QueueRef, wanted: int, limit: Limit, now: int | None = None) -> Grant:
    """Takes up to `wanted` auto-retries from the budget. The caller must call `give_back` afterwards in any case."""
    grant = Grant(0, 0)

    def change(purse: Purse, at: int) -> Purse:
        nonlocal grant
        known = Purse.lost() if purse == Purse() and _has_spent(queue, at) else purse
        grant, left = known.take(at, wanted, limit)
        return left

    swap_one(BUDGET, Place.of(queue), change, now=now)
    return grant


def give_back(queue: QueueRef, grant: Grant, unused: int, now: int | None = None) -> None:
    """Returns what of a grant surely did not go, once its last job went; the others went just now at the latest."""
    if grant.count:
        swap_one(BUDGET, Place.of(queue), lambda purse, at: purse.give_back(grant, unused, at), now=now)


def free_at(queue: QueueRef, limit: Limit, wanted: int = 1, now: int | None = None) -> int | None:
    """Returns when so many may go, at the earliest; None: never, the limit is smaller."""
    with _read():
        at = clock.now() if now is None else now
        purse = brake_rows.one(BUDGET, Place.of(queue)).value
        return purse.found(at, limit).budget.free_at(at, limit, wanted)


# -- the breakers: one for each error, and one for all of a queue


def room(queue: QueueRef, signature: str, now: int | None = None) -> int:
    """Returns how many jobs that failed with this error may be auto-retried now, as far as both of its breakers go."""
    with _read():
        at = clock.now() if now is None else now
        rows = brake_rows.read(BREAKER, Place.of(queue), ("", breaker_key(signature)))
        return min(row.value.room(at) for row in rows.values())


def out(queue: QueueRef | None = None, now: int | None = None) -> dict[QueueRef, tuple[Out, ...]]:
    """Returns auto-retried jobs whose end is not recorded yet, by queue; only queues that have some."""
    with _read():
        at = clock.now() if now is None else now
        rows = brake_rows.of(BREAKER, Place.of(queue) if queue else None).filter(key="")
        found = {brake_rows.place_of(row).queue: brake_rows.decoded(BREAKER, row).value.followed(at) for row in rows}
        return {ref: followed for ref, followed in found.items() if followed}


def settled(queue: QueueRef, ends: Mapping[str, End], now: int | None = None) -> None:
    """Records how auto-retried jobs have ended, by id; a job that is not awaited changes nothing."""
    place = Place.of(queue)
    with _read():
        held = brake_rows.values(BREAKER, place)
    concerned = [key for key, breaker in held.items() if any(job.id in ends for job in breaker.out)]
    swap(BREAKER, place, dict.fromkeys(concerned, _settling(ends)), now)


# -- the retry history of each job, and what is recorded before an auto-retry


def past_of(queue: QueueRef, ids: Sequence[str]) -> dict[str, Past]:
    """Returns the retry history of each of these jobs, by id."""
    with _read():
        rows = brake_rows.read(PAST, Place.of(queue), (job_key(id) for id in ids))
        return {id: rows[job_key(id)].value for id in ids}


def relaunched(queue: QueueRef, jobs: Mapping[str, Going], now: int | None = None) -> tuple[str, ...]:
    """Records the auto-retry of those jobs that may go, and returns their ids in order. Both breakers are asked again
    here, whatever room they had a moment ago. To be called before the jobs go.
    """
    place, going = Place.of(queue), list[str]()
    with _read(), transaction.atomic():
        keys = _keys(place, jobs)

        def admit(breakers: Mapping[str, Breaker], at: int) -> dict[str, Breaker]:
            held = dict(breakers)
            going[:] = [id for id, job in jobs.items() if _goes(held, ("", keys[id]), id, job, at)]
            return held

        swap_together(BREAKER, place, {"", *keys.values()}, admit, now)
        swap(PAST, place, {job_key(id): _counting(jobs[id]) for id in going}, now)
    return tuple(going)


def withdrawn(queue: QueueRef, ids: Sequence[str], now: int | None = None) -> None:
    """Takes back the auto-retry of jobs that have surely not gone after all."""
    with _read(), transaction.atomic():
        swap(PAST, Place.of(queue), dict.fromkeys(map(job_key, ids), lambda past, _: past.withdrawn()), now)
        settled(queue, dict.fromkeys(ids, End(Ended.UNKNOWN)), now)


def prune(now: int | None = None) -> int:
    """Deletes rows that have no effect any more; returns how many."""
    with _read():
        at = clock.now() if now is None else now
        gone = sum(brake_rows.of(kind).filter(at__lt=at - kept).delete()[0] for kind, kept in _KEPT.items())
        for row in brake_rows.of(BREAKER).iterator():
            held = brake_rows.decoded(BREAKER, row)
            if held.is_readable and held.value.is_idle(at):
                gone += brake_rows.of(BREAKER).filter(pk=row.pk, version=row.version).delete()[0]
        return gone


def _has_spent(queue: QueueRef, at: int) -> bool:
    """Returns True if the audit has auto-retries that still count: then a budget that knows of none was lost."""
    lately = AuditEntry.objects.filter(at__gt=at - MINUTE - SECOND, at__lt=at + HOUR, phase=INTENT, act=Act.RETRY)
    return lately.filter(deployment=queue.deployment, base=queue.slug, actor_kind="scanner").exists()


def _keys(place: Place, jobs: Mapping[str, Going]) -> dict[str, str]:
    """Returns the key of the breaker of each job's own error, or of the one for all errors."""
    keys = {id: breaker_key(job.signature) for id, job in jobs.items()}
    rows = brake_rows.of(BREAKER, place)
    if rows.count() < BREAKERS:
        return keys
    held = set(rows.filter(key__in=set(keys.values())).values_list("key", flat=True))
    return {id: key if key in held else "" for id, key in keys.items()}


def _goes(held: dict[str, Breaker], keys: Iterable[str], id: str, job: Going, at: int) -> bool:
    """Records the job in both breakers if both have room; returns whether they had."""
    both = dict.fromkeys(keys)
    for key in both:
        held[key] = _failed_meanwhile(held[key], id, job, at)
    if not all(held[key].room(at) for key in both):
        return False
    for key in both:
        held[key] = replace(held[key].relaunched(id, at, job.failed_at), signature=job.signature if key else "")
    return True


def _failed_meanwhile(breaker: Breaker, id: str, job: Going, at: int) -> Breaker:
    """Counts a failure of the job since its last auto-retry, if that one is still awaited: it is not recorded yet."""
    before = next((out for out in breaker.followed(at) if out.id == id), None)
    if before is None or not before.failed_at or job.failed_at in (0, before.failed_at):
        return breaker
    return breaker.settled(id, Ended.FAILED, at)


def _counting(job: Going) -> Change[Past]:
    return lambda past, at: past.of_life(job.born).relaunched(at)


def _settling(ends: Mapping[str, End]) -> Change[Breaker]:
    def change(breaker: Breaker, at: int) -> Breaker:
        for job in breaker.out:
            if job.id in ends:
                end = ends[job.id]
                breaker = breaker.settled(job.id, end.ended, at, redact.text(end.error))
        return breaker

    return change


@contextmanager
def _read() -> Iterator[None]:
    """Turns an error of the database into NotRecorded: the safety limits are unknown, so nothing may be done."""
    try:
        yield
    except Error as error:
        raise NotRecorded(
            f"The safety limits cannot be read, so nothing was changed: {type(error).__name__}."
        ) from error
