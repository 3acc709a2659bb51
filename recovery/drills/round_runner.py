"""Runs one round: a job is picked up, its worker is ended, and each stage is timed until another worker has the job.

Stages are taken from the workers' events and from the keys in Redis, whichever comes first, all by one clock.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable

from recovery.domain.drills.plan import DrillPlan, StopSignal
from recovery.domain.drills.results import DrillRound, DrillStage, RoundOutcome, measure_stages
from recovery.domain.jobs import JobState
from recovery.drills.observer import DrillObservation, DrillObserver
from recovery.drills.workers import PAUSE, START, DrillWorkerEvent, DrillWorkerNotStarted, DrillWorkers
from recovery.errors import JobMissing

SETTLE = 10.0  # seconds for the job to be finished by the worker that has it then

Rest = Callable[[float], None]
Note = Callable[[str, int], None]  # what happened, and when: ms since the job was picked up, or since the signal

_TWICE = "Another worker took the job while the first one was still running it: it ran twice."
_ALIVE = "It was failed while its worker was still running it:"
_IN_TIME = "The worker finished its job before it stopped: nothing was lost."
_GONE = "The job is no longer in any list of the queue."
_LEFT = "No worker had taken it over after {seconds:g} s."
_RACE = "The grace period ended before the worker had stopped, and it was killed with SIGKILL."
_TOO_SHORT = "The job finished before its worker was to be stopped."


class RoundRunner:
    """A round. To be called from the thread that started the workers."""

    def __init__(self, plan: DrillPlan, crew: DrillWorkers, watcher: DrillObserver, *, rest: Rest, note: Note) -> None:
        self._plan = plan
        self._crew = crew
        self._watcher = watcher
        self._rest = rest
        self._note = note
        self._job = ""
        self._victim = ""
        self._began = 0.0
        self._signal_at: float | None = None
        self._moments: dict[DrillStage, float] = {}
        self._token: str | None = None
        self._stalls: int | None = None
        self._end: RoundOutcome | None = None
        self._says: list[str] = []
        self._next = ""  # the worker that has the job after the first one

    def run(self, number: int) -> DrillRound:
        """Runs the round. Raises NotStarted, StoreError, and whatever `rest` raises."""
        self._crew.fill(self._rest)
        self._job = self._crew.add(self._rest)
        self._picked_up()
        wait = self._plan.wait if self._plan.wait is not None else random.randint(0, self._plan.spread)  # noqa: S311
        self._follow(self._began + wait / 1000)
        if self._end is None:
            self._signal()
            self._follow(None)
        completed = self._settle()
        ran = round(((self._signal_at or time.monotonic()) - self._began) * 1000)
        return self._told(number, ran, completed)

    def _picked_up(self) -> None:
        ends = time.monotonic() + START
        while not self._victim:
            for told in self._crew.told():
                if told.job == self._job and told.event == "started":
                    self._victim, self._began = told.who, told.at
            if time.monotonic() > ends:
                raise DrillWorkerNotStarted(f"No worker began the job within {START:g} s.")
            self._rest(PAUSE)
        self._note("picked up", 0)
        self._look()

    def _signal(self) -> None:
        self._note("signal", self._since(time.monotonic(), self._began))
        self._signal_at = time.monotonic()
        number = signal.SIGTERM if self._plan.means is StopSignal.TERM else signal.SIGKILL
        self._crew.hands[self._victim].child.send(number)

    def _follow(self, until: float | None) -> None:
        """Follows workers and job until the given time, or, without one, until the round is over."""
        while self._end is None:
            for told in self._crew.told():
                self._hear(told)
            self._processes(time.monotonic())
            self._look()
            now = time.monotonic()
            if until is not None and now >= until:
                return
            if self._signal_at and (now - self._signal_at) * 1000 >= self._plan.patience and self._end is None:
                self._over(RoundOutcome.LEFT, _LEFT.format(seconds=self._plan.patience / 1000))
            self._rest(PAUSE if until is None else min(PAUSE, max(0.0, until - now)))

    def _hear(self, told: DrillWorkerEvent) -> None:
        if told.job != self._job or self._end is not None:
            return
        if told.event == "started":
            self._again(told)
        elif told.event == "completed":
            self._over(RoundOutcome.IN_TIME, _IN_TIME if self._signal_at else _TOO_SHORT)
        elif told.event == "failed":
            self._failed(told.at, told.text)
        elif told.event == "stalled":
            self._reach(DrillStage.BACK, told.at)

    def _again(self, told: DrillWorkerEvent) -> None:
        self._next = told.who
        self._reach(DrillStage.AGAIN, told.at)
        if self._is_gone:
            self._over(RoundOutcome.AGAIN)
        else:
            self._over(RoundOutcome.TWICE, _TWICE)

    def _failed(self, at: float, why: str) -> None:
        self._reach(DrillStage.FAILED, at)
        if self._is_gone:
            self._over(RoundOutcome.FAILED, why)
        else:
            self._over(RoundOutcome.TWICE, f"{_ALIVE} {why}")

    @property
    def _has_ended(self) -> bool:
        return self._crew.hands[self._victim].child.ended() is not None

    @property
    def _is_gone(self) -> bool:
        """Returns True if the first worker has ended, or got SIGKILL, which it cannot survive."""
        return self._has_ended or (self._signal_at is not None and self._plan.means is StopSignal.KILL)

    def _look(self) -> None:
        connection = None if DrillStage.GONE in self._moments else self._crew.hands[self._victim].connection
        try:
            self._see(self._watcher.look(self._job, connection))
        except JobMissing:
            if self._end is None:
                self._over(RoundOutcome.LEFT, _GONE)

    def _see(self, sight: DrillObservation) -> None:
        if self._stalls is None:
            self._token, self._stalls = sight.token, sight.row.stalls
        if sight.is_connected is False:
            self._reach(DrillStage.GONE, sight.at)
        if sight.row.lock_known and self._token and sight.token != self._token:
            self._reach(DrillStage.UNLOCKED, sight.at)
        if sight.is_back or sight.row.stalls > self._stalls:
            self._reach(DrillStage.BACK, sight.at)
        elif sight.is_marked:
            self._reach(DrillStage.MARKED, sight.at)
        elif sight.is_marked is False and not self._has_ended:
            self._moments.pop(DrillStage.MARKED, None)  # the lock was renewed; only the job's worker removes the mark
        if sight.row.state is JobState.FAILED and self._end is None:
            self._failed(sight.at, sight.row.reason)

    def _processes(self, now: float) -> None:
        if self._has_ended:
            if self._signal_at is None:
                raise DrillWorkerNotStarted(f"The worker stopped by itself: {self._crew.last_words(self._victim)}")
            self._reach(DrillStage.ENDED, now)
        elif self._signal_at and self._is_out_of_grace(now):
            self._says.append(_RACE)
            self._crew.hands[self._victim].child.send(signal.SIGKILL)
        for name, hand in self._crew.hands.items():
            if name != self._victim and hand.child.ended() is not None:
                raise DrillWorkerNotStarted(f"A worker stopped unexpectedly: {self._crew.last_words(name)}")

    def _is_out_of_grace(self, now: float) -> bool:
        if self._plan.means is not StopSignal.TERM or self._signal_at is None or self._says:
            return False
        return (now - self._signal_at) * 1000 >= self._plan.grace

    def _reach(self, stage: DrillStage, at: float) -> None:
        if stage not in self._moments:
            self._moments[stage] = at
            if self._signal_at is not None:
                self._note(stage.value, self._since(at, self._signal_at))

    def _over(self, end: RoundOutcome, says: str = "") -> None:
        self._end = end
        if says:
            self._says.append(says)

    def _settle(self) -> bool:
        """Reads the job a last time and lets it finish; returns True if the second worker completed it."""
        if self._end is RoundOutcome.AGAIN:
            self._look()
        completed = False
        if self._next:
            self._crew.finish(self._next)
            completed = self._is_completed()
        if self._victim != self._next:
            self._crew.dismiss(self._victim)
        return completed

    def _is_completed(self) -> bool:
        ends = time.monotonic() + SETTLE
        while time.monotonic() < ends:
            if any(told.event == "completed" and told.job == self._job for told in self._crew.told()):
                return True
            self._rest(PAUSE)
        return False

    def _told(self, number: int, wait: int, completed: bool) -> DrillRound:
        end = self._end or RoundOutcome.LEFT
        last = DrillStage.FAILED if end is RoundOutcome.FAILED else DrillStage.AGAIN
        over_at = self._moments.get(last)
        if self._signal_at is None or end is RoundOutcome.IN_TIME:
            return DrillRound(number, end, wait, (), None, completed, " ".join(self._says))
        # A stage that was only seen a moment later happened before the job was picked up again.
        moments = {stage: at if over_at is None else min(at, over_at) for stage, at in self._moments.items()}
        stages = measure_stages(moments, self._signal_at, last)
        total = stages[-1].at if end.is_recovery else None
        return DrillRound(number, end, wait, stages, total, completed, " ".join(self._says))

    @staticmethod
    def _since(at: float, begin: float) -> int:
        return max(0, round((at - begin) * 1000))
