"""Implements the Redis pause: it holds all scanners of a deployment while Redis itself, and not a worker, may be at
fault.

Two things start it. Many jobs lose their locks between two checks: a Redis that came back empty or failed over has lost
the locks of jobs whose workers run on. Or its run id or role changed, it was started lately, or it was silent for so
long that locks expired: until every worker had time to renew its lock, or to end its job, a missing lock proves
nothing.

The second ends by itself after two lock lengths. The first needs a person, or ends by itself when it was not seen again
for a while: a job that still has no lock then is not being worked on, or its library has long since run it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self

from recovery.domain import json_fields
from recovery.domain.identifiers import printable
from recovery.domain.time_units import MINUTE, SECOND, age

LOST_AT_LEAST = 20  # jobs: fewer are one worker that died
LOST_PART = 4  # more than one in so many of the active jobs
LOCK_LENGTHS = 2  # workers renew at half of one; after two every worker that lives has renewed
LOCK_LENGTH = 30 * SECOND  # what both libraries use, when none was seen
# As long as the stale check waits before it acts: longer than anything a library itself would wait.
PATIENCE = 15 * MINUTE


class RedisPauseTrigger(StrEnum):
    LOCKS = "locks"
    RUN = "run"
    ROLE = "role"
    STARTED = "started"
    SILENT = "silent"
    UNREAD = "unread"


@dataclass(frozen=True, slots=True)
class RedisObservation:
    """Observation of a deployment. None and "" mean: not known.

    `lost`: active jobs that had a lock at the observation before and have none now; `gone`: those of them whose
    holder's connection is gone too, so that Redis is not the cause. `bare`: active jobs without a lock that were not
    known to be without one: all that can be said after a restart that was not observed. `older`: active jobs that were
    taken before Redis was started. `silent`: for how long it did not answer, until `back` ago.

    `active` None: only the server was asked, and not its jobs.
    """

    at: int
    active: int | None = None
    lost: int | None = None
    gone: int = 0
    bare: int = 0
    older: int | None = None
    run_id: str = ""
    role: str = ""
    uptime: int | None = None  # ms
    lock_length: int | None = None  # the longest in use
    silent: int = 0  # ms
    back: int = 0


@dataclass(frozen=True, slots=True)
class RedisPauseHold:
    """Reason why the Redis pause is active. `until`: when it ends by itself; None: a person has to release it."""

    why: RedisPauseTrigger
    since: int
    until: int | None
    evidence: str


@dataclass(frozen=True, slots=True)
class RedisPause:
    """State of a deployment kept between two observations. `watched`: the run id when its jobs were last observed."""

    run_id: str = ""
    watched: str = ""
    role: str = ""
    lock_length: int = LOCK_LENGTH
    holds: tuple[RedisPauseHold, ...] = ()
    released_at: int | None = None
    released_by: str = ""

    @classmethod
    def doubtful(cls, now: int) -> Self:
        """Returns an active pause, for a stored state that cannot be read."""
        return cls(
            holds=(
                RedisPauseHold(
                    RedisPauseTrigger.UNREAD, now, now + PATIENCE, "The recorded state of the store cannot be read."
                ),
            )
        )

    def seen(self, look: RedisObservation, *, patience: int | None = PATIENCE) -> RedisPause:
        """Returns the state after one more observation. `patience` None: lost locks wait for a person, however long it
        takes.

        A failed read is no observation: then there is nothing to act on either.
        """
        length = look.lock_length or self.lock_length
        holds = {hold.why: _lengthened(hold, length) for hold in self.holding(look.at)}
        for hold in (*self._lost(look, patience), *self._restless(look, length)):
            holds[hold.why] = _joined(holds.get(hold.why), hold)
        if look.older == 0:
            holds.pop(RedisPauseTrigger.STARTED, None)
        return replace(
            self,
            run_id=look.run_id or self.run_id,
            watched=self.watched if look.active is None else look.run_id or self.watched,
            role=look.role or self.role,
            lock_length=length,
            holds=tuple(holds.values()),
        )

    def holding(self, now: int) -> tuple[RedisPauseHold, ...]:
        """Returns the reasons why the pause is active now; empty: scanners may act."""
        return tuple(hold for hold in self.holds if hold.until is None or now < hold.until)

    def released(self, now: int, by: str) -> RedisPause:
        """Returns the state after a person released it. What starts it later counts again; what was known does not."""
        return replace(self, holds=(), released_at=now, released_by=by)

    def words(self, now: int) -> tuple[str, ...]:
        """Returns one sentence for each reason, with when it ends."""
        holding = self.holding(now)
        if holding:
            return tuple(f"{hold.evidence} {_end_words(hold, now)}" for hold in holding)
        if self.released_at is not None:
            return (f"Not active. {printable(self.released_by)} released it {age(now - self.released_at)} ago.",)
        return ("Not active.",)

    def as_json(self) -> dict[str, Any]:
        return {
            "run_id": self.run_id,
            "watched": self.watched,
            "role": self.role,
            "lock_length": self.lock_length,
            "holds": [[hold.why.value, hold.since, hold.until, hold.evidence] for hold in self.holds],
            "released_at": self.released_at,
            "released_by": self.released_by,
        }

    @classmethod
    def from_json(cls, written: Any) -> Self:
        """Parses the output of `as_json`. Raises ValueError on anything else."""
        run_id, watched, role, lock_length, holds, released_at, released_by = json_fields.fields(written, *_FIELDS)
        return cls(
            json_fields.text(run_id),
            json_fields.text(watched),
            json_fields.text(role),
            json_fields.count(lock_length),
            tuple(_hold(*row) for row in json_fields.rows(holds, 4)),
            json_fields.whole_or_none(released_at),
            json_fields.text(released_by),
        )

    def _lost(self, look: RedisObservation, patience: int | None) -> Iterator[RedisPauseHold]:
        if look.lost is None or look.active is None:
            return
        # All connections are new after a restart: that a holder has none says nothing of it.
        is_new = bool(self.watched and look.run_id and self.watched != look.run_id)
        lost = max(look.lost, look.bare) if is_new else look.lost - look.gone
        was_known = self.released_at is not None and look.at <= self.released_at
        if not was_known and lost >= LOST_AT_LEAST and lost * LOST_PART > look.active:
            said = (
                f"{lost:,} of {look.active:,} active jobs lost their locks between two checks; their workers may "
                "still be running them."
            )
            yield RedisPauseHold(
                RedisPauseTrigger.LOCKS, look.at, None if patience is None else look.at + patience, said
            )

    def _restless(self, look: RedisObservation, length: int) -> Iterator[RedisPauseHold]:
        yield from self._changed(look, length)
        yield from self._started(look, length)
        yield from self._silent(look, length)

    def _silent(self, look: RedisObservation, length: int) -> Iterator[RedisPauseHold]:
        """Yields a hold if Redis was silent for half a lock length, in which workers renew: some locks may have expired
        since.

        The same if no process tried to reach it: whether Redis would have answered then cannot be told afterwards. Its
        uptime says nothing of the network in between, and neither do connections, which outlast a network cut, nor jobs
        that still have a lock, of which a short silence leaves some. Two lock lengths without an action cost little
        beside that.
        """
        at = look.at - look.back
        was_known = self.released_at is not None and at <= self.released_at
        if look.silent * 2 >= length and not was_known and look.at < at + LOCK_LENGTHS * length:
            said = f"The store did not answer for {age(look.silent)}: locks may have expired meanwhile."
            yield RedisPauseHold(RedisPauseTrigger.SILENT, at, at + LOCK_LENGTHS * length, said)

    def _changed(self, look: RedisObservation, length: int) -> Iterator[RedisPauseHold]:
        """Yields holds for a changed run id or role. An unknown value is no change; the next known one is compared."""
        until = look.at + LOCK_LENGTHS * length
        if self.run_id and look.run_id and self.run_id != look.run_id:
            said = "The store restarted or was replaced: its run id changed."
            yield RedisPauseHold(RedisPauseTrigger.RUN, look.at, until, said)
        if self.role and look.role and self.role != look.role:
            said = f"The store's role changed from {printable(self.role)} to {printable(look.role)}."
            yield RedisPauseHold(RedisPauseTrigger.ROLE, look.at, until, said)

    def _started(self, look: RedisObservation, length: int) -> Iterator[RedisPauseHold]:
        """Yields a hold if Redis was started lately. It needs no earlier state, which may be lost together with the
        queues. Jobs that were taken later have a lock from after the start: if there are no others, the start is no
        reason.
        """
        was_looked_at = look.active is None and bool(look.run_id) and look.run_id == self.watched
        if look.uptime is None or look.older == 0 or was_looked_at:
            return
        at = look.at - look.uptime
        # The uptime is told in whole seconds.
        was_known = self.released_at is not None and at - SECOND <= self.released_at
        if not was_known and look.at < at + LOCK_LENGTHS * length:
            yield RedisPauseHold(
                RedisPauseTrigger.STARTED,
                at,
                at + LOCK_LENGTHS * length,
                f"The store was started {age(look.uptime)} ago.",
            )


_ASKED = frozenset({RedisPauseTrigger.LOCKS, RedisPauseTrigger.UNREAD})
_FIELDS = ("run_id", "watched", "role", "lock_length", "holds", "released_at", "released_by")


def _lengthened(hold: RedisPauseHold, length: int) -> RedisPauseHold:
    """Extends a hold when locks turn out to be longer than known when it began: workers then have longer to renew."""
    if hold.until is None or hold.why in _ASKED:
        return hold
    return replace(hold, until=max(hold.until, hold.since + LOCK_LENGTHS * length))


def _joined(old: RedisPauseHold | None, new: RedisPauseHold) -> RedisPauseHold:
    """Merges two holds of the same reason: since the earlier begin, until the later end."""
    if old is None:
        return new
    until = None if old.until is None or new.until is None else max(old.until, new.until)
    return replace(new, since=min(old.since, new.since), until=until)


def _end_words(hold: RedisPauseHold, now: int) -> str:
    if hold.until is None:
        return f"Auto-recovery has been paused for {age(now - hold.since)}, until a person resumes it."
    asked = " or until a person resumes it" if hold.why in _ASKED else ""
    return f"Auto-recovery stays paused for {age(hold.until - now)} more{asked}."


def _hold(why: Any, since: Any, until: Any, evidence: Any) -> RedisPauseHold:
    return RedisPauseHold(
        RedisPauseTrigger(why), json_fields.whole(since), json_fields.whole_or_none(until), json_fields.text(evidence)
    )
