"""One queue's failed jobs sent back to work in one run: step by step, each as large as the brakes allow.

1. What went before is settled, so that the breakers know. 2. Candidates are chosen that no breaker holds. 3. The
budget grants some of them. 4. That they go is kept: in their past, and in the breakers. 5. They go. 6. What surely did
not go after all is given back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from recovery.actions import brakes
from recovery.actions.brakes import Going
from recovery.domain import redact
from recovery.domain.acting import Act, Outcome, Seen
from recovery.domain.ages import MINUTE, SECOND, age
from recovery.domain.breaker import Breaker, Stage
from recovery.domain.budget import Limit, limit
from recovery.domain.policy import Scanner
from recovery.domain.refs import shown
from recovery.domain.scans import Find
from recovery.reads import brake_rows, completions, relaunched
from recovery.reads.brake_rows import BREAKER, Place, breaker_key
from recovery.reads.lists import Queue
from recovery.scanners.acting.deeds import Deeds, Wish
from recovery.scanners.deep import aftermath
from recovery.scanners.deep.candidates import LOOKED, Candidates, Due

STEP = 100  # jobs of one step: one order, so that what goes is close to when it was granted
WINDOWS = 20  # read in one step: some tenths of a second, so that one queue keeps no other waiting
OBSERVED = 500  # failed jobs of one queue looked at in one run where nothing may go
LOOK = 2 * SECOND  # between two looks at what is out, while nothing else can go
Breakers = Mapping[str, Breaker]
_WENT = frozenset({Outcome.DONE, Outcome.UNKNOWN})


class Relaunch:
    """Of one queue in one run. `holds`: what holds something back, in sentences; the last word on each counts.

    `clock` tells the time of the brakes. `never`: why nothing may go here, whatever the policy says.
    """

    def __init__(
        self, queue: Queue, deeds: Deeds, clock: Callable[[], int], *, cursor: str = "", never: str = ""
    ) -> None:
        self.finds: list[Find] = []
        self.holds: dict[str, str] = {}
        self._queue = queue
        self._deeds = deeds
        self._clock = clock
        self._candidates = Candidates(queue, lambda: deeds.policy(queue.ref).policy, cursor)
        self._never = never
        self._observed = ""  # why what is due stays where it is
        self._held: set[str] = set()  # errors whose breaker is open
        self._limit: Limit | None = None

    @property
    def looked(self) -> int:
        return self._candidates.looked

    @property
    def resume(self) -> str:
        """Where the next run begins."""
        return self._candidates.resume(self._held)

    def step(self) -> int | None:
        """As much as can go now. When to go on, None: this run has done what it can.

        Raises StoreError, NotRecorded, and Error of the database.
        """
        ref = self._queue.ref
        now = self._clock()
        if self._deeds.is_stopped:
            return None
        self._observed = self._never or self._deeds.why_not(ref)
        if self._observed:
            return self._look_on(now)
        aftermath.settle(self._queue, brakes.out(ref, now).get(ref, ()), now)
        room = min(STEP, self._deeds.room(ref))
        if not room:
            self._tell_full()
            return None
        breakers = brake_rows.values(BREAKER, Place.of(ref))
        chosen = self._choose(room, breakers, now)
        return self._go(chosen, now) if chosen else self._later(breakers, now)

    def close(self) -> None:
        """What stayed where it is, and why: one find for each job that would have gone, and one for each reason."""
        if self._observed:
            due = self._candidates.waiting[: self._deeds.room(self._queue.ref)]
            self.finds += [Find(self._queue.ref.job(one.id), _what(one), self._observed) for one in due]
        for rule, kept in self._candidates.kept.items():
            jobs = "1 failed job is" if kept.count == 1 else f"{kept.count:,} failed jobs are"
            self._tell_queue(kept.why, f"{jobs} not auto-retried: {rule.value}")
        if self._candidates.looked >= LOOKED:
            label, total = self._queue.ref.label, self._candidates.total
            of = "" if total is None else f" of {total:,}"
            self.holds["looked"] = (
                f"{self.looked:,}{of} failed jobs of {label} were checked; the next run continues there."
            )

    # -- who may go

    def _choose(self, room: int, breakers: Breakers, now: int) -> list[Due]:
        """As many windows are read as it takes, but not too many in one step."""
        chosen, wanted = self._allowed(room, breakers, now)
        for _ in range(WINDOWS):
            if len(chosen) >= wanted or not self._candidates.may_have_more:
                break
            self._candidates.read(now)
            chosen, wanted = self._allowed(room, breakers, now)
        return chosen

    def _allowed(self, room: int, breakers: Breakers, now: int) -> tuple[list[Due], int]:
        """The oldest first, but the most hopeful one where only one may go, as a probe; and how many are wanted."""
        every = self._breaker("", breakers, now)
        room = min(room, every.room(now))
        allowed: list[Due] = []
        for signature, waiting in self._candidates.due.items():
            own = self._breaker(signature, breakers, now)
            probes = own.stage(now) is Stage.HALF_OPEN
            allowed += (sorted(waiting, key=_hope) if probes else waiting)[: own.room(now)]
        probes = every.stage(now) is Stage.HALF_OPEN
        return sorted(allowed, key=_hope if probes else _place)[:room], room

    def _breaker(self, signature: str, breakers: Breakers, now: int) -> Breaker:
        """An open one is said; one that has closed again is not any more."""
        breaker = breakers.get(breaker_key(signature), Breaker(signature))
        if breaker.stage(now) is Stage.CLOSED:
            self._held.discard(signature)
            self.holds.pop(f"breaker {signature}", None)
            return breaker
        self._held.add(signature)
        what = f"“{_plain(signature)}”" if signature else "all errors"
        said = f"Breaker of {self._queue.ref.label} for {what}: {redact.text(breaker.words(now))}"
        self.holds[f"breaker {signature}"] = said
        return breaker

    def _later(self, breakers: Breakers, now: int) -> int | None:
        """When something that is out may have ended, or a pause has."""
        every = _opens(self._breaker("", breakers, now), now)
        waiting = [signature for signature, due in self._candidates.due.items() if due]
        each = [_opens(self._breaker(signature, breakers, now), now) for signature in waiting]
        if self._candidates.may_have_more:
            each.append(now)  # they are not read yet, because nothing may go at all
        return max(every, min(each)) if each else None

    # -- they go

    def _go(self, chosen: Sequence[Due], now: int) -> int:
        """The grant is for this moment, so all that takes time comes before it."""
        ref = self._queue.ref
        self._candidates.take(chosen)
        ready = self._candidates.again(chosen, now)
        failed_at = relaunched.failed_at(self._queue, [due.id for due in ready])
        ready = [due for due in ready if due.id in failed_at]
        allowed = self._allowance()
        grant = brakes.take(ref, len(ready), allowed, self._clock())
        went = grant.count  # as far as anybody knows, when something goes wrong on the way
        try:
            self._candidates.put_back(ready[grant.count :])
            if went:
                went = self._launched(ready[: grant.count], failed_at)
        finally:
            brakes.give_back(ref, grant, grant.count - went, self._clock())
        return now if grant.count == len(ready) else self._without_budget(allowed)

    def _launched(self, going: Sequence[Due], failed_at: Mapping[str, int]) -> int:
        """How many of them went, or may have."""
        ref = self._queue.ref
        jobs = {due.id: Going(due.signature, failed_at[due.id], due.failed.row.added_at or 0) for due in going}
        admitted = set(brakes.relaunched(ref, jobs, self._clock()))
        self._candidates.put_back([due for due in going if due.id not in admitted])
        going = [due for due in going if due.id in admitted]
        sentence = self._deeds.policy(ref).sentence(Scanner.AUTO_RETRY, self._clock())
        wishes = [Wish(Seen.of(due.failed.row), _what(due), sentence) for due in going]
        finds = self._deeds.do(Act.RETRY, ref, wishes)
        self.finds += finds
        stayed = [find.job.id for find in finds if find.outcome not in _WENT]
        if stayed:
            brakes.withdrawn(ref, stayed, self._clock())
        return len(going) - len(stayed)

    def _allowance(self) -> Limit:
        """Counted once a run: an hour's sum moves slowly."""
        if self._limit is None:
            self._limit = limit(completions.last_hour(self._queue, self._clock()))
        return self._limit

    def _without_budget(self, allowed: Limit) -> int:
        now = self._clock()
        self.holds["budget"] = f"Budget of {self._queue.ref.label}: {allowed.words} The rest waits."
        free_at = brakes.free_at(self._queue.ref, allowed, now=now)
        return now + MINUTE if free_at is None else free_at

    # -- nothing goes

    def _look_on(self, now: int) -> int | None:
        """Looks for what would go, if it were let."""
        for _ in range(WINDOWS):
            if not self._may_look_on():
                return None
            self._candidates.read(now)
        return now

    def _may_look_on(self) -> bool:
        candidates, room = self._candidates, self._deeds.room(self._queue.ref)
        return candidates.may_have_more and candidates.looked < OBSERVED and len(candidates.waiting) < room

    def _tell_full(self) -> None:
        """What one run may do is done; the rest is for the next one."""
        if self._candidates.waiting or self._candidates.may_have_more:
            self.holds["most"] = f"The maximum of jobs per run is reached for {self._queue.ref.label}: the rest waits."

    def _tell_queue(self, why: str, what: str = "failed jobs") -> None:
        self.finds.append(Find(self._queue.ref.job(""), what, why))


def _opens(breaker: Breaker, now: int) -> int:
    """When it may have room again, at the earliest."""
    return breaker.retry_at if breaker.stage(now) is Stage.OPEN else now + LOOK


def _hope(due: Due) -> tuple[int, int]:
    return due.past.made, due.failed.failure.failed_at or 0


def _place(due: Due) -> tuple[int, int]:
    return due.place


def _what(due: Due) -> str:
    failure = due.failed.failure
    ago = age(max(0, due.read_at - (failure.failed_at or due.read_at)))
    return f"failed {ago} ago with “{_plain(failure.signature)}”. {due.words}"


def _plain(signature: str) -> str:
    return redact.text(shown(signature)) or "no message"
