"""A leader that is stopped in the midst of a bulk run and goes on when another leads: nothing is done twice.

Real processes. One of them is stopped at a place that is named beforehand, or anywhere; the other one waits for the end
of its term, leads, and ends the run; then the first one goes on where it stood, as if nothing had been.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from django.db import ConnectionHandler

from dashboard.database_url import database_settings
from recovery.backends.redis_common import fencing
from recovery.reads.scanners import scheduler_status
from tests.support.patience import promptly
from tests.support.processes.processes import end, spawn
from tests.support.processes.schedulers import STARTS_WITHIN, Process
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.fences import Queue
from tests.support.stores.stores import Store
from tests.support.waiting import until

JOBS = 120
LONG_ROUNDS = 200  # with each database
PATIENCE = 60.0  # seconds for whatever one of them has to do
LEASE = 2.0  # seconds, of these schedulers
GOES_ON_WITHIN = 2.0  # seconds after another leads
FOLLOWS = "on standby: "  # said when nothing of its term is left
# Where it stops, and how often it passed there before: a chunk is read, written down, sent, concluded.
BEFORE_THE_SCRIPT = "execute_jobs._do before 2"
PLACES = (
    BEFORE_THE_SCRIPT,
    "execute_jobs._do behind 2",
    "audit_log.write_outcome before 3",
    "audit_log.write_intent before 2",
    "runner.perform_prechecked before 4",
    "audit_log.write_intent behind 1",
    "audit_log.write_intent behind 3",
    "audit_log.write_outcome behind 2",
    "runner.perform_prechecked behind 5",
    "anywhere",
)
pytestmark = [pytest.mark.timeout(300), pytest.mark.django_db]

# A scheduler with short terms and small chunks. It waits to be stopped where the file `trap` says, once.
_SCHEDULER = """
import os, sys, django
django.setup()
from pathlib import Path
from recovery.actions.audit import audit_log
from recovery.actions import execute_jobs, runner
from recovery.backends.bullmq.operator import BullMQOperator
from recovery.scheduler import lease_holder, lease
lease.TERM, lease.RENEW, lease.MARGIN = 2.0, 0.5, 0.4
lease_holder._place = lambda: sys.argv[1]
BullMQOperator.chunk = lambda self, act: 20
trap, passed = Path(sys.argv[2]), {}

def stop(place):
    try:
        wanted = trap.read_text()
    except OSError:
        return
    if not wanted.startswith(place + " "):
        return
    passed[wanted] = passed.get(wanted, 0) + 1
    if passed[wanted] == int(wanted.split()[2]):
        trap.with_name("caught").write_text(str(os.getpid()))
        trap.unlink()
        while trap.with_name("caught").exists():  # it is stopped here, and goes on where it stood
            os.sched_yield()

def guard(module, name):
    real, place = getattr(module, name), f"{module.__name__.rpartition('.')[2]}.{name}"
    def guarded(*arguments, **named):
        stop(place + " before")
        came_to = real(*arguments, **named)
        stop(place + " behind")
        return came_to
    setattr(module, name, guarded)

for module, name in ((execute_jobs, "_do"), (runner, "perform_prechecked"),
                     (audit_log, "write_intent"), (audit_log, "write_outcome"), (audit_log, "_settle")):
    guard(module, name)
from recovery.config import current
from recovery.scheduler.process import run
run(current())
"""
# Orders a retry of all failed jobs whenever it is asked to.
_ORDERS = """
import sys, time, django
django.setup()
from recovery.actions.bulk import bulk_runs
from recovery.domain.actions.types import Action, Actor, ActionCommand
from recovery.domain.jobs import JobState
from recovery.domain.identifiers import QueueRef
actor = Actor("shell", "me", "admin", may_act=True, may_bulk=True)
for line in sys.stdin:
    order = ActionCommand(Action.RETRY, QueueRef("main", "bull:mail"), actor, "it is back")
    run = bulk_runs.order(order, bulk_runs.BulkSelection(JobState.FAILED, int(time.time() * 1000)))
    print(run.pk, flush=True)
"""


class Pair:
    """Two schedulers over one database and one queue, and somebody who orders."""

    def __init__(self, directory: Path, queues: Store, state: Store, database: str) -> None:
        self.queue, self._state = Queue(queues.client, "bullmq5"), state
        self._directory, self._trap, self._caught = directory, directory / "trap", directory / "caught"
        self._database = ConnectionHandler({"default": database_settings(database, pooled=False)})["default"]
        (directory / "unstall.toml").write_text("[intervals]\ncollect = 0.5\n")
        self.queue.add("0")  # there is something to be found
        queues.client.hset(f"{self.queue.base}:meta", mapping={"version": "bullmq:5.81.5", "opts.maxLenEvents": 10**6})
        environ = {"UNSTALL_REDIS_URL": queues.url, "UNSTALL_STATE_URL": state.url, "DATABASE_URL": database}
        whole = environ_of(directory, {"DJANGO_SETTINGS_MODULE": "dashboard.settings", **environ})
        self.both = tuple(
            Process(directory, name, ("-c", _SCHEDULER, f"machine-{name}", str(self._trap)), environ) for name in "ab"
        )
        with (directory / "orders.log").open("wb") as log:
            command = [sys.executable, "-c", _ORDERS]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            self._orders = spawn(command, **pipes, stderr=log, environ=whole, directory=ROOT)
        until(self.leader, STARTS_WITHIN, "one of them leads")

    def close(self) -> None:
        for one in self.both:
            one.end()
        end(self._orders)
        self._database.close()

    def leader(self) -> Process | None:
        sign = scheduler_status.fetch(self._state.client)
        return next((one for one in self.both if sign and sign.leads and sign.pid == one.pid), None)

    def set_trap(self, place: str) -> None:
        self._trap.write_text(place)

    def caught(self) -> Process | None:
        """Who has come to the place of the trap, and waits there."""
        pid = self._caught.read_text() if self._caught.exists() else ""
        return next((one for one in self.both if pid == str(one.pid)), None)

    def stop(self, one: Process) -> None:
        """Not while it holds SQLite's one lock, with which nobody could lead until it goes on."""
        with self._nobody_writes():
            one.stop()
        self._caught.unlink(missing_ok=True)

    @contextmanager
    def _nobody_writes(self) -> Iterator[None]:
        if self._database.vendor != "sqlite":
            yield
            return
        self.ask("BEGIN IMMEDIATE")
        yield
        self.ask("ROLLBACK")

    def order(self) -> int:
        assert self._orders.stdin is not None
        assert self._orders.stdout is not None
        self._orders.stdin.write(b"all\n")
        self._orders.stdin.flush()
        return int(self._orders.stdout.readline())

    def ask(self, statement: str, *values: object) -> list[Any]:
        with self._database.cursor() as cursor:
            cursor.execute(statement, values)
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    def one(self, statement: str, *values: object) -> Any:
        return self.ask(statement, *values)[0][0]

    def has_ended(self, run: int) -> bool:
        return bool(self.one("SELECT status = 'ended' FROM recovery_bulkrun WHERE id = %s", run))

    def settled(self, run: int) -> int:
        return int(self.one("SELECT count(*) FROM recovery_bulkitem WHERE run_id = %s AND outcome != ''", run))

    def refusals(self) -> int:
        """Outcomes that say that a script met the fence."""
        said = "SELECT count(*) FROM recovery_auditentry WHERE phase = 'outcome' AND body LIKE %s"
        return int(self.one(said, "%Another scheduler is the leader (epoch%"))

    def moves(self) -> Counter[str]:
        """How often each job was sent back to work, as the library's own log of events has it."""
        found = self.queue.client.xrange(f"{self.queue.base}:events")
        return Counter(one[b"jobId"].decode() for _, one in found if one[b"event"] == b"waiting")


@pytest.fixture
def pair(
    request: pytest.FixtureRequest,
    our_database: Callable[[str, Path], str],
    tmp_path: Path,
    valkey: Store,
    state_store: Store,
) -> Iterator[Pair]:
    pair = Pair(tmp_path, valkey, state_store, our_database(request.param, tmp_path))
    yield pair
    pair.close()


@pytest.mark.parametrize("pair", ["sqlite"], indirect=True)
def test_a_leader_that_was_stopped_past_its_term_does_nothing_twice(pair: Pair) -> None:
    refused = sum(_round(pair, number, place) for number, place in enumerate(PLACES[:5]))
    assert refused >= 1


@pytest.mark.parametrize("pair", ["sqlite"], indirect=True)
def test_a_run_whose_leader_was_killed_goes_on_as_soon_as_another_leads(pair: Pair) -> None:
    ids = [f"k-{at}" for at in range(JOBS)]
    pair.queue.failed(*ids)
    pair.set_trap("execute_jobs._do behind 2")
    run = pair.order()
    former = _found(until(pair.caught, PATIENCE, "one of them is in the midst of it"))
    former.send(signal.SIGKILL)
    with promptly(LEASE + GOES_ON_WITHIN, "the run"):
        until(lambda: pair.has_ended(run), PATIENCE, "the other one ends the run")
    _judge(pair, run, ids)


@pytest.mark.long
@pytest.mark.parametrize("pair", ["postgresql"], indirect=True)
def test_one_that_was_stopped_with_the_end_of_the_audit_in_its_hands_holds_nobody_up(pair: Pair) -> None:
    """PostgreSQL takes the lock from it. SQLite cannot: there nobody leads until it goes on or is ended."""
    for number, place in enumerate(("audit_log._settle before 2", "audit_log._settle behind 3")):
        _round(pair, number, place)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("pair", ["sqlite", "postgresql"], indirect=True)
def test_nor_does_it_in_two_hundred_rounds(pair: Pair) -> None:
    places = list(islice(cycle(PLACES), LONG_ROUNDS))
    refused = sum(_round(pair, number, place) for number, place in enumerate(places))
    assert refused >= places.count(BEFORE_THE_SCRIPT)


def _round(pair: Pair, number: int, place: str) -> int:
    """One stop and what follows; how many scripts were refused for it."""
    ids = [f"r{number}-{at}" for at in range(JOBS)]
    pair.queue.failed(*ids)
    refusals, halted = pair.refusals(), _stop_at(pair, place, number)
    run = pair.order()
    former = halted(run)
    pair.stop(former)
    until(lambda: pair.leader() not in (None, former), PATIENCE, "the other one leads")
    until(lambda: pair.has_ended(run), PATIENCE, "it ends the run")
    told = former.log.count(FOLLOWS)
    former.send(signal.SIGCONT)
    until(lambda: former.log.count(FOLLOWS) > told, PATIENCE, "the first one knows that it leads no more")
    _judge(pair, run, ids)
    refused = pair.refusals() - refusals
    assert refused >= (place == BEFORE_THE_SCRIPT)
    return refused


def _stop_at(pair: Pair, place: str, number: int) -> Callable[[int], Process]:
    """Waits for the one that is to be stopped: it is there; or, for anywhere, so and so many jobs are done."""
    if place != "anywhere":
        pair.set_trap(f"{place} {number}")  # no two are the same: each is counted anew
        return lambda _: _found(until(pair.caught, PATIENCE, f"one of them comes to {place}"))
    wanted = Random(number).randrange(JOBS)

    def halt(run: int) -> Process:
        until(lambda: pair.settled(run) >= wanted, PATIENCE, f"{wanted} are done")
        return _found(until(pair.leader, PATIENCE, "one of them leads"))

    return halt


def _found(one: Process | None) -> Process:
    assert one is not None
    return one


def _judge(pair: Pair, run: int, ids: list[str]) -> None:
    """Each job moved once, each has one result, the counters say the same, and the audit claims none of them twice."""
    client, base = pair.queue.client, pair.queue.base
    moves = pair.moves()
    assert {moves[id] for id in ids} == set(moves.values()) == {1}  # those of earlier rounds as well
    assert client.zcard(f"{base}:failed") == 0
    waiting = [id.decode() for id in client.lrange(f"{base}:wait", 0, -1)]
    assert len(waiting) == len(set(waiting)) == len(moves)
    outcomes = dict(pair.ask("SELECT outcome, count(*) FROM recovery_bulkitem WHERE run_id = %s GROUP BY outcome", run))
    assert sum(outcomes.values()) == JOBS
    assert set(outcomes) <= {"done", "unknown"}
    counted = pair.ask("SELECT done, unknown, refused, missing, unchanged FROM recovery_bulkrun WHERE id = %s", run)
    assert counted == [(outcomes.get("done", 0), outcomes.get("unknown", 0), 0, 0, 0)]
    claims = "SELECT job, count(*) FROM recovery_auditjob WHERE outcome = 'done' GROUP BY job HAVING count(*) > 1"
    assert pair.ask(claims) == []
    assert client.ttl(fencing.key_of(base)) > 0
