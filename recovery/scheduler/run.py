"""The scheduler process: starts the scanners, says that it is alive, and ends in order.

On the first signal: 1. no new run starts; 2. what is in hand is finished; 3. our sign of life is taken away;
4. Redis and 5. the database are closed. Whatever hangs is left behind after ten seconds. A second signal exits at once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.cron import CronTrigger
from apscheduler.triggers.date import DateTrigger
from apscheduler.triggers.interval import IntervalTrigger
from django.db import connections

from recovery.config import Config
from recovery.connections import faults, state
from recovery.connections.registry import Registry
from recovery.errors import UnstallError
from recovery.processes.signals import Ending
from recovery.scheduler.plan import Entry, Plan, plan
from recovery.scheduler.rounds import Rounds

log = logging.getLogger(__name__)

GRACE = 10.0  # seconds until a hanging end is forced
ALIVE_EVERY = 5.0  # seconds
ALIVE_FOR = 16  # seconds: three signs may be lost before a page says that nobody is there
INSISTED = 130  # exit status of a process that was interrupted
HUNG = 1


def run(config: Config, ending: Ending | None = None) -> None:
    """Until a signal comes."""
    ending = ending or Ending(lambda: os._exit(INSISTED))
    ending.listen()
    registry = Registry(config)
    table = plan(config, registry)
    alive = Alive(registry)
    scheduler = schedule(table, alive)
    scheduler.start()
    log.info("started: %s", ", ".join(entry.name for entry in table.entries))
    while not ending.wait(60):
        pass
    _end(scheduler, table, alive, registry)


def schedule(table: Plan, alive: Alive) -> BackgroundScheduler:
    """Not started yet. Each entry has a thread when it needs one, so that a slow one delays nobody."""
    # APScheduler warns at every tick that a run was skipped because the last one still goes on; that is what we want.
    logging.getLogger("apscheduler").setLevel(logging.ERROR)
    entries = (Entry("alive", ALIVE_EVERY, alive.say), *table.entries)
    scheduler = BackgroundScheduler(
        executors={"default": ThreadPoolExecutor(len(entries))},
        job_defaults={"coalesce": True, "max_instances": 1},
        timezone=UTC,
    )
    for entry in entries:
        scheduler.add_job(
            Rounds(entry.name, entry.run),
            id=entry.name,
            name=entry.name,
            misfire_grace_time=max(1, int(entry.every)) if entry.every else None,
            **_timing(entry),
        )
    return scheduler


def _timing(entry: Entry) -> dict[str, Any]:
    """When it runs, as APScheduler's keyword arguments. An interval alone would let the first one pass."""
    if entry.second is not None:
        return {"trigger": CronTrigger(second=entry.second, timezone=UTC)}
    first = datetime.now(UTC) + timedelta(seconds=entry.first)
    if not entry.every:
        return {"trigger": DateTrigger(first, timezone=UTC)}
    interval = IntervalTrigger(seconds=entry.every, jitter=entry.jitter or None, timezone=UTC)
    return {"trigger": interval, "next_run_time": first}


class Alive:
    """The key by which a page knows that the scheduler runs; it ends by itself when we do not renew it."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._since = int(time.time() * 1000)
        self._sign = ""

    def say(self, now: int) -> None:
        self._sign = json.dumps({"host": socket.gethostname(), "pid": os.getpid(), "since": self._since, "at": now})
        store = self._registry.state()
        with faults.guarded(store):
            store.set(state.SCHEDULER, self._sign, ex=ALIVE_FOR)

    def leave(self) -> None:
        """Unless another scheduler has said since that it is there."""
        store = self._registry.state()
        with faults.guarded(store):
            if store.get(state.SCHEDULER) == self._sign.encode():
                store.delete(state.SCHEDULER)


def _end(scheduler: BackgroundScheduler, table: Plan, alive: Alive, registry: Registry) -> None:
    log.info("ending")
    overdue = threading.Timer(GRACE, _give_up)
    overdue.daemon = True
    overdue.start()
    table.stop()
    scheduler.shutdown(wait=True)
    table.close()
    try:
        alive.leave()
    except UnstallError as error:
        log.info("no sign of life to take away: %s", error)
    registry.close()
    connections.close_all()
    overdue.cancel()
    log.info("ended")


def _give_up() -> None:
    log.error("still busy after %.0f s; leaving it behind", GRACE)
    os._exit(HUNG)
