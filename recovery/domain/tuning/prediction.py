"""Predicts how long a job of a killed worker waits for its recovery, and whether SIGKILL hits a worker that still runs
jobs.

From the kill on, three stages follow one another: its lock runs out, a check finds it, a worker takes it.

The lock (L) was renewed at most one renewal (R) before the kill: L − R … L are left of it, L − R/2 as a rule.

The check runs in the workers that are left, every interval (I), behind one key that lives for I. A check recovers a job
only when an earlier one has marked it and no worker has renewed it since. So there are three cases:

- The checks stay regular: another worker's checks were those that counted. Lock and interval both pass at most once, so
  all is done after L + I, and where the lock is shorter than the interval, after 2 I, for the mark has to come first.
  This is what people reckon with: `about`.
- The checks are interrupted: the worker that died had run them, as one of two does in half of the deaths. The next one
  comes when its key has ended and the other worker's own time has come: 0 … 2 I after the kill, I as a rule. The job is
  marked then, and taken I later: 2 I. A lock of two intervals and more outlives that first check, and waits for
  half an interval after its end: L − R/2 + I/2. The greater of the two is `typical`.
- A check is missed too: one that comes a moment before the key of its own last one has ended, does nothing and comes
  again I later. Seen with a lone worker in 2 of 24 checks of BullMQ 5, in 6 of 24 of Bull 4. At worst the first check
  comes after 2 I or the lock's end, and the one that takes the job another 2 I later: max(L, 2 I) + 2 I is `worst`.

That fits what was measured. BullMQ at its defaults (L 30, R 15, I 30) is said to take 60 s, at worst 120 s: 80 jobs
with a healthy second worker took p50 63 s, p90 107 s, worst 114 s. At a tenth of the settings, times multiplied by
ten: 80 kills with BullMQ 5.81 took p50 56 s, worst 105 s; 80 with Bull 4.16 p50 44 s, worst 82 s, for there the other
worker more often keeps the checks regular; 25 with Bull as n8n sets it (L 60, R 10, I 30: 70 s, at worst 120 s) p50
70 s, worst 111 s. A worker that is too busy to renew in time loses its lock sooner than `at_least`.

n8n 2.41 and later fail a job that is found, and wait up to 30 s more until its execution is an error (`error_after`).

A job that is found is taken within milliseconds by a worker that has a free slot; how long it waits for one, no setting
tells.
"""

from __future__ import annotations

from dataclasses import dataclass

from recovery.domain.tuning.timing import WorkerTiming

LOCK, CHECK, PICK_UP, ERROR = "lock", "check", "pick-up", "error"
_AT_LEAST = 0.8  # of n8n's wait: it checks the execution at intervals, each up to a fifth of a second short


@dataclass(frozen=True, slots=True)
class PredictedStage:
    """A stage between the kill and the job's next run, in seconds."""

    name: str
    at_least: float
    typical: float
    at_most: float


@dataclass(frozen=True, slots=True)
class PredictedRecovery:
    """Time from SIGKILL until the job is recovered, while another worker lives. `about`: at most, if checks are
    regular.
    """

    stages: tuple[PredictedStage, ...]
    about: float

    @property
    def at_least(self) -> float:
        return sum(stage.at_least for stage in self.stages)

    @property
    def typical(self) -> float:
        return sum(stage.typical for stage in self.stages)

    @property
    def worst(self) -> float:
        return sum(stage.at_most for stage in self.stages)


@dataclass(frozen=True, slots=True)
class PredictedShutdown:
    """Timeline of an ordered stop, in seconds: SIGTERM after `pre_stop`, own exit at `done`, SIGKILL at `killed`."""

    pre_stop: float
    done: float
    killed: float

    @property
    def margin(self) -> float:
        """Seconds of the grace period that are left when the application has stopped waiting for its jobs."""
        return self.killed - self.done

    @property
    def races(self) -> bool:
        """Returns True if SIGKILL comes while the application may still be ending its jobs, or in the same moment."""
        return self.margin <= 0


@dataclass(frozen=True, slots=True)
class Prediction:
    """Prediction for one timing. `recovery` None: no check runs, so no job is ever recovered. `shutdown` None: its
    times are not known.

    `runs_again` False: what is found is failed at once, and does not run a second time.
    """

    recovery: PredictedRecovery | None
    shutdown: PredictedShutdown | None
    runs_again: bool


def predict(timing: WorkerTiming) -> Prediction:
    """Predicts recovery and shutdown from the settings alone."""
    return Prediction(_recovery(timing), _shutdown(timing), runs_again=timing.max_stalled > 0)


def _recovery(timing: WorkerTiming) -> PredictedRecovery | None:
    lock, interval, after = timing.lock, timing.stalled_interval, timing.error_after
    if interval <= 0:
        return None
    left = lock - min(timing.renew, lock) / 2
    typical = max(2 * interval, left + interval / 2)
    worst = max(lock, 2 * interval) + 2 * interval
    stages = (
        PredictedStage(LOCK, max(0.0, lock - timing.renew), left, lock),
        PredictedStage(CHECK, 0.0, typical - left, worst - lock),
        PredictedStage(ERROR, _AT_LEAST * after, after, after) if after else PredictedStage(PICK_UP, 0.0, 0.0, 0.0),
    )
    return PredictedRecovery(stages, about=max(lock, interval) + interval + after)


def _shutdown(timing: WorkerTiming) -> PredictedShutdown | None:
    if timing.shutdown is None or timing.grace is None:
        return None
    return PredictedShutdown(timing.pre_stop, timing.pre_stop + timing.shutdown, timing.grace)
