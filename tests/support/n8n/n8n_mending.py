"""A yard of n8n (n8n_yard.py) before a process that may mend it: orders through the one door, and its audit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from recovery.actions import runner
from recovery.domain.actions.types import Action, ActionCommand, ActionOptions, ActionPrecheck, JobResult
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.stuck.types import VerdictKind
from recovery.models import AuditEntry
from recovery.n8n import jobless_executions
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.support.acting import ADMIN
from tests.support.n8n.n8n_yard import Run, Yard
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import WatchBench
from tests.support.waiting import until

JOBS = QueueRef("main", "bull:jobs")
EXECUTIONS = QueueRef("main", "n8n.executions")
MINUTES = 240.0  # seconds: far beyond the grace
# What n8n keeps of an execution that has not begun to run: flat, a stack of one node.
KEPT = json.dumps([
    {"version": 1, "startData": "1", "resultData": "2", "executionData": "3"}, {}, {"runData": "4"},
    {"contextData": "5", "nodeExecutionStack": "6", "waitingExecution": "7"}, {}, {}, ["8"], {}, {"node": "9"}, {},
])  # fmt: skip
# What it has written over it when main made an error of it.
OVERWRITTEN = json.dumps([
    {"version": 1, "startData": "1", "resultData": "2", "executionData": "3"}, {}, {"error": "4", "runData": "5"},
    {"contextData": "6", "nodeExecutionStack": "7", "waitingExecution": "8"}, {"message": "9"}, {}, {}, [], {}, "lost",
])  # fmt: skip


class Mending:
    def __init__(self, yard: Yard, state: Store, watch: WatchBench) -> None:
        self.yard, self.state, self.watch = yard, state, watch

    @property
    def client(self) -> redis.Redis:
        return self.yard.store.client

    # -- what is to be mended

    def lost(self) -> Run:
        """A job whose only worker was killed: its execution is running, and it is proven that nobody holds it."""
        run = self.yard.begin()
        worker = self.yard.work()
        until(lambda: self.yard.queue().counts()["active"] == 1, what="a worker has the job")
        self.yard.started(run)
        worker.kill()
        self.proven(run)
        return run

    def proven(self, run: Run) -> None:
        until(lambda: not self.client.exists(f"bull:jobs:{run.job}:lock"), what="the lock has ended")
        self.watch.discover()
        self.watch.until_kind(JOBS, VerdictKind.ABANDONED)
        windows.forget()

    def held(self) -> Run:
        """A job that a worker runs; the worker ends with the test."""
        run = self.yard.begin()
        self.yard.work()
        until(lambda: self.client.exists(f"bull:jobs:{run.job}:lock"), what="a worker holds the job")
        self.yard.started(run)
        return run

    def keeps(self, execution: str, data: str = KEPT) -> None:
        """What n8n has kept of it."""
        self.yard.keeps(execution, data)

    def seen_alone(self, *executions: str) -> None:
        """As if they had been looked at half a minute ago for the first time."""
        runner.preview(self.order(Action.MARK, *executions))
        marks = self.state.client.hgetall("unstall:n8n:alone")
        for field, at in marks.items():
            seen = jobless_executions._moment(decode_name(field), at)
            assert seen
            self.state.client.hset(
                "unstall:n8n:alone", field, jobless_executions._sealed(decode_name(field), seen - 31_000)
            )

    # -- orders

    def order(self, act: Action, *ids: str, **options: Any) -> ActionCommand:
        of_executions = act in (Action.MARK, Action.RETRY_EXECUTION, Action.RESCUE)
        ref = EXECUTIONS if of_executions else JOBS
        windows.forget()
        return ActionCommand(
            act, ref, ADMIN, "the worker died", runner.current_jobs(ref, ids), ActionOptions(**options)
        )

    def look(self, act: Action, id: str, **options: Any) -> ActionPrecheck:
        return runner.preview(self.order(act, id, **options)).judgements[0]

    def does(self, act: Action, id: str, **options: Any) -> JobResult:
        return self.carry_out(self.order(act, id, **options))

    def carry_out(self, order: ActionCommand) -> JobResult:
        (result,) = runner.perform(order)
        return result

    def audited(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Intent and outcome of the last act."""
        intent, outcome = AuditEntry.objects.order_by("-number")[:2][::-1]
        return json.loads(intent.body), json.loads(outcome.body)

    def is_there(self, run: Run) -> bool:
        return bool(self.client.exists(f"bull:jobs:{run.job}"))


@contextmanager
def mending(
    yard: Yard, state: Store, directory: Path, patch: pytest.MonkeyPatch, *, url: str = "", more: str = ""
) -> Iterator[Mending]:
    """`more` is added to [[n8n]], `url` is another way to the database."""
    rest = f'\n[state]\nurl = "{state.url}"\n\n[thresholds]\nstalled_interval = 1\n'
    (directory / "unstall.toml").write_text(yard.toml(url=url, more=more) + rest)
    patch.setenv("UNSTALL_CONFIG", str(directory / "unstall.toml"))
    registry.reset()
    windows.forget()
    watch = WatchBench(registry.registry().config)
    yield Mending(yard, state, watch)
    watch.close()
    registry.reset()
