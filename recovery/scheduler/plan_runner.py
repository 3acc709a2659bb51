"""Runs one plan: starts its entries when they are due, and at the end waits for the last run."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.jobstores.base import JobLookupError
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from django.db import Error, close_old_connections, connections

from recovery import shared_clock
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.scheduler.leader_token import May, always_leader
from recovery.errors import UnstallError
from recovery.scheduler.plan import PlanEntry, SchedulerPlan
from recovery.shared_clock import steady

# -- tick guard
# Guards the runs of one scanner: an error is logged once, not at each tick, and the next run goes on.


log = logging.getLogger(__name__)


class TickGuard:
    """Callable that does one run."""

    def __init__(
        self,
        name: str,
        run: Callable[[int], object],
        clock: Callable[[], int] = shared_clock.now,
        may: May = always_leader,
    ) -> None:
        self._name = name
        self._run = run
        self._clock = clock
        self._may = may
        self._trouble = ""
        self.ended_at: float | None = None  # on the clock of `steady`

    def __call__(self) -> None:
        if self._may():
            self._go()
        self.ended_at = steady()

    def _go(self) -> None:
        close_old_connections()
        try:
            self._run(self._clock())
        except UnstallError as error:
            self._fail(str(error), None)
        except Exception as error:  # noqa: BLE001 -- a scanner's edge: whatever it is, the next run goes on
            self._fail(repr(error), error)
        else:
            self._succeed()
        finally:
            close_old_connections()

    def _fail(self, trouble: str, error: Exception | None) -> None:
        if trouble != self._trouble:
            log.error("%s: %s", self._name, trouble, exc_info=error)
        self._trouble = trouble

    def _succeed(self) -> None:
        if self._trouble:
            log.info("%s: recovered", self._name)
        self._trouble = ""


# -- plan runner


LOOK = 1.0  # seconds between two checks of the planned times
SLACK = 0.5  # seconds that a run may be planned later than its interval says
_MINUTE = 60.0


class PlanRunner:
    """Runs a plan as soon as it is made. `alive` writes the heartbeat, and runs without the plan's leadership check."""

    def __init__(self, table: SchedulerPlan, alive: PlanEntry) -> None:
        self._table = table
        self._began = steady()
        self._scheduler = build_scheduler(table, alive)
        self._furthest = {entry.name: longest_delay(entry) for entry in (alive, *table.entries)}
        self._look_at = 0.0
        collect = self._scheduler.get_job(ScannerKind.COLLECT.value)
        self._collect: TickGuard | None = collect.func if collect else None
        self._end = threading.Thread(target=self._finish, name="end of duty", daemon=True)
        self._scheduler.start()

    def keep_time(self) -> None:
        """Runs entries now that a wall clock set back has put off, as APScheduler plans by that clock. Called often."""
        if steady() < self._look_at:
            return
        self._look_at, now = steady() + LOOK, datetime.now(UTC)
        for job in self._scheduler.get_jobs():
            if is_put_off(job.next_run_time, now, self._furthest[job.id]):
                log.info("%s: planned for %s by another clock, runs now", job.id, job.next_run_time)
                with suppress(JobLookupError):  # it ran just now, for the last time
                    job.modify(next_run_time=now)

    @property
    def came_round(self) -> float:
        """Time of the end of the last snapshot run, successful or not, on the clock of `steady`."""
        return (self._collect.ended_at if self._collect else None) or self._began

    @property
    def is_ending(self) -> bool:
        return self._end.ident is not None

    @property
    def is_over(self) -> bool:
        """Returns True if the plan is ending and no run is left."""
        return self.is_ending and not self._end.is_alive()

    def begin_end(self) -> None:
        """Lets no new run start, and returns without waiting."""
        self._end.start()

    def end(self) -> None:
        """Lets no new run start, and waits for those under way."""
        if not self.is_ending:
            self.begin_end()
        self._end.join()

    def _finish(self) -> None:
        self._table.stop()
        self._scheduler.shutdown(wait=True)
        try:
            self._table.close()
        except (Error, UnstallError) as error:
            log.warning("the claims will expire by themselves: %s", error)
        finally:
            connections.close_all()  # of this thread


def build_scheduler(table: SchedulerPlan, alive: PlanEntry) -> BackgroundScheduler:
    """Returns a scheduler that is not started yet. Each entry can have a thread, so that a slow one delays no other."""
    # APScheduler warns at every tick about a run that is skipped because the last one is under way: that is intended.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(len(table.entries) + 1)},
        job_defaults={"coalesce": True, "max_instances": 1},
        timezone=UTC,
    )
    _add(scheduler, alive, TickGuard(alive.name, alive.run))
    for entry in table.entries:
        _add(scheduler, entry, TickGuard(entry.name, entry.run, may=table.may))
    return scheduler


def _add(scheduler: BackgroundScheduler, entry: PlanEntry, rounds: TickGuard) -> None:
    scheduler.add_job(
        rounds,
        id=entry.name,
        name=entry.name,
        misfire_grace_time=None,  # a run that comes late is better than none, and a clock set ahead makes all late
        **_timing(entry),
    )


def longest_delay(entry: PlanEntry) -> float:
    """Returns the longest time (s) from now until the next run of an entry."""
    return max(entry.first, entry.every * (1 + entry.jitter), _MINUTE if entry.second is not None else 0.0)


def is_put_off(planned: datetime | None, now: datetime, furthest: float) -> bool:
    return planned is not None and (planned - now).total_seconds() > furthest + SLACK


def _timing(entry: PlanEntry) -> dict[str, Any]:
    """Returns when an entry runs, as APScheduler's keyword arguments. An interval alone would skip the first run."""
    if entry.second is not None:
        return {"trigger": CronTrigger(second=entry.second, timezone=UTC)}
    first = datetime.now(UTC) + timedelta(seconds=entry.first)
    if not entry.every:
        return {"trigger": DateTrigger(first, timezone=UTC)}
    interval = IntervalTrigger(seconds=entry.every, jitter=entry.jitter or None, timezone=UTC)
    return {"trigger": interval, "next_run_time": first}
