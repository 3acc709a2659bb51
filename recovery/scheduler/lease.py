"""Which of several schedulers leads: the one that has the lease, for as long as it knows that it has it.

A thread of its own asks the database; everybody else asks us, and is answered from memory. An answer that did not come
extends nothing: we trust the last one that did until a second before the database lets the lease go to another.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from functools import partial

from django.db import Error

from recovery.domain.mandate import Mandate
from recovery.scheduler.holder import Holder
from recovery.scheduler.row import Grant, Row, Tenure
from recovery.shared_clock import steady

log = logging.getLogger(__name__)

TERM = 9.0  # seconds; three renewals fit in, so that one may be lost
RENEW = 3.0
MARGIN = 1.0  # of the term: the clocks of two machines do not run equally fast, and a step takes a moment
LOOK = 0.3  # between two looks of one who follows: released, the lease has another holder within a second
RETRY = 1.0  # behind an error
SILENCE = 4.0  # without an answer the database counts as away, though nothing has failed yet
FAREWELL = 3.0  # for the last words to the database; a term is over soon in any case


@dataclass(frozen=True, slots=True)
class Trust:
    """The lease as we know it."""

    grant: Grant
    until: float  # on our own clock

    @classmethod
    def of(cls, grant: Grant, began: float) -> Trust:
        """The database counted the term from some moment behind `began`, so it ends there later than here."""
        return cls(grant, began + TERM - MARGIN)


class Lease:
    """This process's part in it. `step` may be called by one thread only: ours, once it has been started."""

    def __init__(self, row: Row, me: Holder) -> None:
        self.leader: Tenure | None = None  # another one who leads, as last seen
        self.trouble = ""  # why the database does not answer
        self._row = row
        self.me = me
        self._trust: Trust | None = None
        self._stands = True
        self._answered_at = steady()
        self._unmoved: tuple[int, int, float] = (0, 0, 0.0)  # epoch and expiry of the row, and when we saw them first
        self._was_over = False  # when it was first seen so
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    # -- for everybody

    def epoch(self) -> int | None:
        """Of the term in which we lead now; None when we do not."""
        trust = self._trust
        return trust.grant.epoch if trust and steady() < trust.until else None

    def is_leader(self) -> bool:
        return self.epoch() is not None

    @property
    def is_blind(self) -> bool:
        """Nobody can know who leads, for the database does not answer."""
        return not self.is_leader() and (bool(self.trouble) or steady() - self._answered_at > SILENCE)

    def grant(self) -> Grant | None:
        trust = self._trust
        return trust.grant if trust and steady() < trust.until else None

    def mandate(self, epoch: int) -> Mandate:
        grant = self.grant()
        return Mandate(epoch, lambda: self.epoch() == epoch, grant.installation if grant else "")

    def stand(self, stands: bool) -> None:
        """Whether we want to lead. What an earlier term left unfinished is a reason not to."""
        self._stands = stands

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Lets go of it, so that another leads at once. A database that does not answer is not waited for."""
        self._ending.set()
        self._thread.join(FAREWELL)

    # -- for the thread

    def _run(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            pause = self.step()
        self.release()

    def step(self) -> float:
        """Asks once; seconds until the next time."""
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
        self._trust = Trust.of(grant, began) if grant else None
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

    def _ask(self, began: float) -> Grant | None:
        take = partial(self._row.take, str(self.me), int(TERM * 1000))
        if self._trust:
            grant = take()
            if grant:
                return grant
        seen = self._row.read()
        self.leader = None if self._is_free(seen, began) else seen
        return None if self.leader else take(seen)

    def _is_free(self, seen: Tenure, now: float) -> bool:
        """Released, or ours, or of a dead process, or not renewed for a term of our own clock. One that was over when
        we saw it first is over; one that we saw renewed is not, though the database's clock jumps and says so.
        """
        if (seen.epoch, seen.expires_at) != self._unmoved[:2]:
            self._unmoved = (seen.epoch, seen.expires_at, now)
            self._was_over = seen.left <= 0
        holder = Holder.parse(seen.holder)
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
