"""Bulk runs that are stopped, lose their store or their process, and go on: nothing is done twice."""

from __future__ import annotations

import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from recovery.actions import precheck, runner
from recovery.actions.audit import audit_log
from recovery.actions.bulk import bulk_runs
from recovery.actions.bulk.bulk_runs import BulkRunner
from recovery.actions.bulk.run_lock import BulkRunLock, BulkRunTaken
from recovery.backends.bullmq import scripts
from recovery.domain.actions.types import Action, Outcome, ScriptOutcome
from recovery.domain.jobs import JobState
from recovery.domain.stuck.types import VerdictKind
from recovery.errors import NotRecorded, Unreachable
from recovery.models import AuditEntry, AuditJob, BulkRun
from recovery.reads.audit import queries as book
from recovery.reads.bulk import queries as progress_of
from tests.support.acting import ADMIN, Bench, all_of, finish
from tests.support.processes.processes import end, spawn, succeed
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.stores.stores import Store
from tests.support.stuck.watching import now_ms
from tests.support.waiting import until

pytestmark = pytest.mark.django_db


# -- stopping and going on


@pytest.fixture
def at_chunk(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], None]], None]:
    """Something happens right before the n-th chunk."""
    real, count = runner.perform_prechecked, [0]

    def set_trap(number: int, happens: Callable[[], None]) -> None:
        def chunk(*arguments: Any) -> Any:
            count[0] += 1
            if count[0] == number:
                happens()
            return real(*arguments)

        monkeypatch.setattr(runner, "perform_prechecked", chunk)

    return set_trap


def test_a_run_stops_after_the_chunk_in_hand_and_goes_on_when_asked(
    bench: Bench, hands: BulkRunner, at_chunk: Callable[[int, Callable[[], None]], None]
) -> None:
    bench.failed(*(str(number) for number in range(1200)))
    run = all_of(bench, Action.RETRY)
    at_chunk(2, lambda: _stop(run))
    found = finish(hands, run)
    assert (found.status, found.done, len(bench.ids(JobState.FAILED))) == ("stopped", 1000, 200)
    assert not bulk_runs.stop(run.pk, ADMIN)
    assert bulk_runs.resume(run.pk, ADMIN)
    found = finish(hands, run)
    assert (found.status, found.done, bench.ids(JobState.FAILED)) == ("ended", 1200, [])


def _stop(run: BulkRun) -> None:
    assert bulk_runs.stop(run.pk, ADMIN)


def test_a_run_that_nobody_began_stops_too(bench: Bench, hands: BulkRunner) -> None:
    bench.failed("1")
    run = all_of(bench, Action.RETRY)
    bulk_runs.stop(run.pk, ADMIN)
    found = finish(hands, run)
    assert (found.status, found.done) == ("stopped", 0)


def test_whoever_begins_to_lead_goes_on_at_once_with_the_run_of_one_that_died(bench: Bench, hands: BulkRunner) -> None:
    """No matter how fresh its last sign of life is: the lease says who leads, and the run waits for nobody else."""
    bench.failed("1")
    run = all_of(bench, Action.RETRY)
    dead = BulkRunLock.take(run.pk, now_ms())
    assert dead is not None
    assert hands.run(0) > 0
    assert progress_of.progress(run.pk, now_ms()).done == 1
    with pytest.raises(BulkRunTaken):
        dead.beat(now_ms())


def test_a_chunk_that_was_cut_off_before_its_act_is_done_once(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the intent and the script."""
    bench.failed("1", "2")
    run = all_of(bench, Action.RETRY)

    class Killed(BaseException):
        pass

    def die(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr("recovery.actions.execute_jobs._do", die)
        with pytest.raises(Killed):
            hands.run(0)
    assert bench.ids(JobState.FAILED) == ["1", "2"]
    found = finish(hands, run)
    assert (found.done, found.unknown) == (2, 0)
    assert bench.ids(JobState.WAITING) == ["2", "1"]


def test_a_chunk_that_was_cut_off_behind_its_act_is_not_done_again(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies between the script and the outcome: how the jobs look now is said, and no more is done."""
    bench.failed("1", "2")
    run = all_of(bench, Action.RETRY)
    _cut_off_behind_its_act(hands, monkeypatch)
    assert bench.ids(JobState.WAITING) == ["2", "1"]
    found = finish(hands, run)
    assert (found.unknown, found.done) == (2, 0)
    assert bench.ids(JobState.WAITING) == ["2", "1"]
    row = progress_of.results(run.pk).rows[0]
    assert "waiting now" in row.why
    detail = book.entry(row.audit or 0)
    assert (detail.line.tally, detail.outcome is not None) == ({"unknown": 2}, True)


def test_of_a_job_that_came_back_since_its_chunk_was_cut_off_nobody_says_that_nothing_was_done(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was retried, and failed again before anybody looked: it stands where it stood, and is not as it was."""
    bench.failed("1")
    run = all_of(bench, Action.RETRY)
    _cut_off_behind_its_act(hands, monkeypatch)
    bench.client.delete("bull:mail:wait")
    bench.failed("1", at=now_ms(), atm=2)
    found = finish(hands, run)
    assert (found.unknown, found.refused) == (1, 0)
    assert book.entry(progress_of.results(run.pk).rows[0].audit or 0).line.tally == {"unknown": 1}


def test_a_store_that_goes_away_holds_the_run_which_then_goes_on(
    bench: Bench, hands: BulkRunner, at_chunk: Callable[[int, Callable[[], None]], None]
) -> None:
    bench.failed(*(str(number) for number in range(1200)))
    run = all_of(bench, Action.RETRY)
    at_chunk(2, bench.queues.pause)
    hands.run(0)
    found = progress_of.progress(run.pk, now_ms())
    assert (found.status, found.done) == ("running", 500)
    assert found.trouble
    bench.queues.resume()
    found = finish(hands, run)
    assert (found.status, found.done + found.unknown, found.trouble) == ("ended", 1200, "")
    assert len(bench.ids(JobState.WAITING)) == 1200
    assert len(set(bench.ids(JobState.WAITING))) == 1200


class Losing:
    """An operator whose store goes away behind the back of the first call."""

    def __init__(self, able: Any) -> None:
        self._able, self.calls = able, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._able, name)

    def on_jobs(self, *arguments: Any) -> Sequence[ScriptOutcome]:
        self.calls += 1
        done: Sequence[ScriptOutcome] = self._able.on_jobs(*arguments)
        if self.calls == 1:
            raise Unreachable("redis://queues", "it closed the connection")
        return done


def test_jobs_whose_answer_was_lost_are_looked_at_and_not_done_twice(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.failed("1", "2")
    run = all_of(bench, Action.RETRY)
    able = Losing(precheck.operator(precheck.build_context(bench.ref, Action.RETRY).queue.flavour))
    monkeypatch.setattr(precheck, "operator", lambda flavour: able)
    hands.run(0)
    assert "closed the connection" in progress_of.progress(run.pk, now_ms()).trouble
    found = finish(hands, run)
    assert (found.unknown, able.calls) == (2, 1)
    assert bench.ids(JobState.WAITING) == ["2", "1"]


def test_a_lost_answer_leaves_at_most_a_hundred_jobs_of_a_window_unknown(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script has run. What was answered before is done, what was not sent yet is done later."""
    ids = [str(number) for number in range(1000)]
    bench.orphan(*ids)
    bench.look()
    run = all_of(bench, Action.REQUEUE, JobState.ACTIVE, verdict=VerdictKind.ORPHAN)
    real, count = scripts.run_each, [0]

    def lose(*arguments: Any) -> Any:
        replies = real(*arguments)
        count[0] += 1
        if count[0] == 2:
            raise Unreachable("redis://queues", "it closed the connection")
        return replies

    monkeypatch.setattr(scripts, "run_each", lose)
    found = finish(hands, run)
    assert (found.status, found.total, found.done, found.unknown, found.refused) == ("ended", 1000, 900, 100, 0)
    assert sorted(bench.ids(JobState.WAITING), key=int) == ids
    assert {bench.client.hget(f"bull:mail:{id}", "stc") for id in ids} == {b"1"}
    rows = progress_of.results(run.pk, outcome="unknown", size=500).rows
    assert ["waiting now" in row.why for row in rows] == [True] * 100
    in_audit = AuditJob.objects.filter(outcome="done").values_list("job", flat=True)
    assert len(in_audit) == len(set(in_audit)) == 900
    assert book.verify().is_sound


def test_a_script_that_always_fails_is_tried_twice(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.failed("1")
    run = all_of(bench, Action.RETRY)

    def fail(*_: object) -> tuple[ScriptOutcome, ...]:
        return (ScriptOutcome("1", Outcome.UNKNOWN, "OOM command not allowed"),)

    monkeypatch.setattr("recovery.actions.execute_jobs._do", fail)
    found = finish(hands, run)
    assert (found.status, found.unknown) == ("ended", 1)
    assert AuditEntry.objects.filter(phase="intent").count() == 2


def test_an_audit_that_cannot_be_written_holds_the_run(
    bench: Bench, hands: BulkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.failed("1")
    run = all_of(bench, Action.RETRY)

    def full(*_: object, **__: object) -> int:
        raise NotRecorded("The audit cannot be written, so nothing was changed.")

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "write_intent", full)
        hands.run(0)
    found = progress_of.progress(run.pk, now_ms())
    assert (found.status, "audit" in found.trouble) == ("gathering", True)
    assert bench.ids(JobState.FAILED) == ["1"]
    assert finish(hands, run).done == 1


# -- a process that is killed


def test_a_scheduler_that_is_killed_is_followed_by_one_that_goes_on(
    valkey: Store, state_store: Store, tmp_path: Path
) -> None:
    """With a real process and SIGKILL, again and again: each job is retried once."""
    bench = Bench(valkey, state_store)
    bench.client.hset("bull:mail:meta", mapping={"version": "bullmq:5.81.5", "opts.maxLenEvents": "100000"})
    ids = [str(number) for number in range(800)]
    bench.failed(*ids)
    environ = environ_of(tmp_path, {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url})
    environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
    succeed("manage.py", "migrate", "--verbosity=0", environ=environ)
    succeed("-c", _ORDERS, environ=environ)
    for share in (0.2, 0.5):
        _kill_at(environ, tmp_path, int(share * len(ids)))
    with (tmp_path / "log").open("wb") as log:
        process = spawn([sys.executable, "-c", _RUNS], stdout=log, stderr=log, environ=environ, directory=ROOT)
        until(lambda: _asked(tmp_path, "SELECT status FROM recovery_bulkrun") == "ended", 60, "the run ends")
        end(process)
    waiting = bench.ids(JobState.WAITING)
    assert sorted(waiting, key=int) == ids
    assert bench.ids(JobState.FAILED) == []
    moves = [fields for _, fields in bench.client.xrange("bull:mail:events") if fields[b"event"] == b"waiting"]
    assert len(moves) == len(ids)


_ORDERS = """
import django
django.setup()
import time
from recovery.actions.bulk import bulk_runs
from recovery.domain.actions.types import Action, Actor, ActionCommand
from recovery.domain.jobs import JobState
from recovery.domain.identifiers import QueueRef
actor = Actor("shell", "me", "admin", may_act=True, may_bulk=True)
order = ActionCommand(Action.RETRY, QueueRef("main", "bull:mail"), actor, "it is back")
bulk_runs.order(order, bulk_runs.BulkSelection(JobState.FAILED, int(time.time() * 1000)))
"""
# Chunks are small: there is much to be cut off.
_RUNS = """
import django
django.setup()
from apscheduler.schedulers.blocking import BlockingScheduler
from recovery.actions.bulk import bulk_runs
from recovery.stores.registry import registry
from recovery.backends.bullmq.operator import BullMQOperator
BullMQOperator.chunk = lambda self, act: 20
scheduler = BlockingScheduler(job_defaults={"coalesce": True, "max_instances": 1})
scheduler.add_job(bulk_runs.BulkRunner(registry()).run, "interval", args=[0], seconds=0.05)
scheduler.start()
"""


def _kill_at(environ: dict[str, str], directory: Path, count: int) -> None:
    with (directory / "log").open("wb") as log:
        process = spawn([sys.executable, "-c", _RUNS], stdout=log, stderr=log, environ=environ, directory=ROOT)
        try:
            done = "SELECT count(*) FROM recovery_bulkitem WHERE outcome != ''"
            until(lambda: int(_asked(directory, done) or 0) >= count, 60, f"{count} are done")
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait(10)


def _asked(directory: Path, query: str) -> Any:
    with closing(sqlite3.connect(directory / "unstall.sqlite3", timeout=10)) as database:
        (row,) = database.execute(query).fetchall()
        return row[0]


def _cut_off_behind_its_act(hands: BulkRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """The script has run, and the process dies before the outcome is written."""

    class Killed(BaseException):
        pass

    def die(*_: object, **__: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(audit_log, "write_outcome", die)
        with pytest.raises(Killed):
            hands.run(0)
