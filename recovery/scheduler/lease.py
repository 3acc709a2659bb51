"""Elects the leader among several schedulers: the one that has the lease, as long as it knows that it has it.

A thread of its own asks the database; other threads are answered from memory. A renewal without an answer extends
nothing: the last answer is trusted until a second before the database gives the lease to another process.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial

from django.db import Error

from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.scheduler.lease_holder import LeaseHolder
from recovery.scheduler.lease_row import LeaseGrant, LeaseRecord, LeaseRow
from recovery.shared_clock import steady

log = logging.getLogger(__name__)

TERM = 9.0  # seconds; three renewals fit in, so that one may be lost
RENEW = 3.0
MARGIN = 1.0  # of the term: the clocks of two machines do not run equally fast, and a step takes a moment
LOOK = 0.3  # between two reads of a follower: a released lease has another holder within a second
RETRY = 1.0  # after an error
ANSWER_TIMEOUT = 4.0  # without an answer the database counts as away, though nothing has failed yet
RELEASE_TIMEOUT = 3.0  # for the release at the end; a term is over soon in any case


@dataclass(frozen=True, slots=True)
class HeldLease:
    """Lease as this process knows it."""

    grant: LeaseGrant
    until: float  # on our own clock

    @classmethod
    def of(cls, grant: LeaseGrant, began: float) -> HeldLease:
        """Counts the term from before the request, so that it ends here earlier than in the database."""
        return cls(grant, began + TERM - MARGIN)


class LeaderLease:
    """Lease from the view of this process. `step` may be called by one thread only: its own, once that is started."""

    def __init__(self, row: LeaseRow, me: LeaseHolder) -> None:
        self.leader: LeaseRecord | None = None  # another process that leads, as last read
        self.trouble = ""  # why the database does not answer
        self._row = row
        self.me = me
        self._trust: HeldLease | None = None
        self._stands = True
        self._answered_at = steady()
        self._unmoved: tuple[int, int, float] = (0, 0, 0.0)  # epoch and expiry of the row, and when we read them first
        self._was_over = False  # it had expired when it was first read so
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    # -- for all threads

    def epoch(self) -> int | None:
        """Returns the epoch of the term in which this process leads now; None when it does not."""
        trust = self._trust
        return trust.grant.epoch if trust and steady() < trust.until else None

    def is_leader(self) -> bool:
        return self.epoch() is not None

    @property
    def is_blind(self) -> bool:
        """Returns True if the leader is unknown, because the database does not answer."""
        return not self.is_leader() and (bool(self.trouble) or steady() - self._answered_at > ANSWER_TIMEOUT)

    def grant(self) -> LeaseGrant | None:
        trust = self._trust
        return trust.grant if trust and steady() < trust.until else None

    def leader_token(self, epoch: int) -> LeaderToken:
        grant = self.grant()
        return LeaderToken(epoch, lambda: self.epoch() == epoch, grant.installation if grant else "")

    def stand(self, stands: bool) -> None:
        """Sets whether this process wants to lead; it does not while runs of an earlier term are unfinished."""
        self._stands = stands

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Releases the lease, so that another process leads at once; does not wait long for the database."""
        self._ending.set()
        self._thread.join(RELEASE_TIMEOUT)

    # -- for the thread

    def _run(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            pause = self.step()
        self.release()

    def step(self) -> float:
        """Reads or renews the lease once; returns the seconds until the next time."""
        if not self._stands:
            self._trust = None
            self._answered_at = steady()
            return LOOK
        began = steady()
        try:
            grant = self._ask(began)
        except Error as error:
            self._fail(error)
            return RETRY
        self._trust = HeldLease.of(grant, began) if grant else None
        self._recover()
        return RENEW if grant else LOOK

    def release(self) -> None:
        trust, self._trust = self._trust, None
        try:
            if trust:
                self._row.release(str(self.me))
        except Error as error:
            log.info("the lease will expire by itself: %s", _first_line(error))
        finally:
            self._row.close()

    def _ask(self, began: float) -> LeaseGrant | None:
        take = partial(self._row.take, str(self.me), int(TERM * 1000))
        if self._trust:
            grant = take()
            if grant:
                return grant
        seen = self._row.read()
        self.leader = None if self._is_free(seen, began) else seen
        return None if self.leader else take(seen)

    def _is_free(self, seen: LeaseRecord, now: float) -> bool:
        """Returns True if the lease is released, ours, of a dead process, or not renewed for a term of our own clock.
        One that had expired when first read is free; one seen renewed is not, even if the database's clock jumps.
        """
        if (seen.epoch, seen.expires_at) != self._unmoved[:2]:
            self._unmoved = (seen.epoch, seen.expires_at, now)
            self._was_over = seen.left <= 0
        holder = LeaseHolder.parse(seen.holder)
        return (
            self._was_over
            or seen.holder == str(self.me)
            or (holder is not None and holder.is_dead(self.me.place))
            or now - self._unmoved[2] > TERM
        )

    def _fail(self, error: Error) -> None:
        trouble = _first_line(error)
        if trouble != self.trouble:
            log.warning("the leader cannot be read from the database: %s", trouble)
        self.trouble = trouble

    def _recover(self) -> None:
        self._answered_at = steady()
        if self.trouble:
            log.warning("the leader can be read from the database again")
        self.trouble = ""


def _first_line(error: Error) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
