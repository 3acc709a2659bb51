"""What the scanners will do about a lost job by themselves, and when at the latest: the policy of its queue, foretold.

They are promised nothing of what they leave to a person: poison, bad data, n8n. A scanner that is armed and held back
promises too, and says what holds it: so a reader learns why nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from recovery.domain.holders import GONE_FOR, Holder, gone_for, holder
from recovery.domain.jobs import JobRow
from recovery.domain.policy import Scanner
from recovery.domain.rescuers import Armed
from recovery.domain.surroundings import POISON_AFTER, Sighting, Surroundings
from recovery.domain.verdicts import Kind

REQUEUES, RELEASES, REMOVES = "requeues it", "releases its lock and requeues it", "removes its id"


@dataclass(frozen=True, slots=True)
class Promise:
    """`at`: when it is done at the latest (ms). `held`: why it is not done as things are; "": nothing is in the way."""

    scanner: Scanner
    does: str
    at: int
    held: str = ""


@dataclass(frozen=True, slots=True)
class Outlook:
    """For one job: the scanner that puts it right first, and those that would and are held."""

    first: Promise | None = None
    held: tuple[Promise, ...] = field(default=())


NOTHING = Outlook()


def outlook(
    kind: Kind, row: JobRow, around: Surroundings, sighting: Sighting, *, orphaned: int = 0, is_malformed: bool = False
) -> Outlook:
    """`kind`: as its lock tells. Sightings and earlier incidents as for a verdict."""
    if is_malformed or (orphaned + 1 >= POISON_AFTER and kind is not Kind.GHOST):
        return NOTHING
    said = sorted(_all(kind, row, around, sighting), key=lambda one: one.at)
    first = next((one for one in said if not one.held), None)
    return Outlook(first, tuple(one for one in said if one.held))


def recovers_within(around: Surroundings) -> int | None:
    """From a holder's death until its job runs again, at worst; None: never, or nobody knows."""
    if around.lock_length is None:
        return None
    proof = around.stalled_interval if around.has_window else 0
    free = [] if around.is_n8n else [one for one in (around.rescuers.watch, around.rescuers.stale) if one]
    after = [max(proof, one.after) + one.every for one in free if not one.held]
    if not around.watchdog_is_dead:
        after.append(around.stalled_interval)
    return around.lock_length + min(after) if after else None


def _all(kind: Kind, row: JobRow, around: Surroundings, sighting: Sighting) -> Iterator[Promise]:
    if kind is Kind.GHOST:
        yield from _of_ghost(row, around, sighting)
    elif not around.is_n8n and (kind.is_lost or kind is Kind.LATE):
        if row.lock is not None and row.lock.ttl is None:
            yield from _of_endless(row, around, sighting)
        else:
            yield from _of_lost(kind, row, around, sighting)


def _of_ghost(row: JobRow, around: Surroundings, sighting: Sighting) -> Iterator[Promise]:
    """With a watchdog alive the library moves the id first, and what becomes of it then is nobody's promise."""
    stale = around.rescuers.stale
    if stale and row.lock is None and around.watchdog_is_dead:
        yield _promise(stale, REMOVES, sighting.since + stale.after, around)


def _of_endless(row: JobRow, around: Surroundings, sighting: Sighting) -> Iterator[Promise]:
    """Nothing but the stale check touches such a lock, and only of a worker that is known to be gone."""
    stale = around.rescuers.stale
    if stale and stale.release and row.worker and holder(row, around) is Holder.GONE:
        yield _promise(stale, RELEASES, sighting.since + stale.after, around)


def _of_lost(kind: Kind, row: JobRow, around: Surroundings, sighting: Sighting) -> Iterator[Promise]:
    """Without a lock, or with one that ends by itself."""
    watch, stale = around.rescuers.watch, around.rescuers.stale
    bare_at = sighting.since if row.lock is None else around.now + (row.lock.ttl or 0)
    proven_at = around.now if kind.is_orphaned else bare_at + (around.stalled_interval if around.has_window else 0)
    gone = gone_for(row, around) if kind is Kind.DOOMED else None
    if watch and watch.release and gone is not None:
        yield _promise(watch, RELEASES, around.now + max(GONE_FOR - gone, watch.after), around)
    elif watch:
        yield _promise(watch, REQUEUES, max(proven_at, bare_at + watch.after), around)
    if stale:
        yield _promise(stale, REQUEUES, max(proven_at, bare_at + stale.after), around)


def _promise(armed: Armed, does: str, ready_at: int, around: Surroundings) -> Promise:
    done_at = armed.run_after(ready_at, around.now, crowd=around.lost_together)
    return Promise(armed.scanner, does, done_at, armed.held)
