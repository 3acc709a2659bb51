"""AutoRetrying under a clock of its own: whoever waits makes it later, and a test says what happens meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from recovery.actions.audit import audit_log
from recovery.domain.actions.types import Action, ActionCommand, ExpectedJob, Outcome
from recovery.domain.auto_retry.rules import RetryHistory
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion, Snapshot
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken
from recovery.models import BrakeState
from recovery.reads.safety_limits.limit_rows import RETRY_HISTORY
from recovery.scanners.auto_retry.scanner import AutoRetry
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.support.acting import ADMIN, Bench
from tests.support.stores.stores import Store
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watching import bullmq, config_of, now_ms

ARMED = """
[policy]
idempotency = "the mails carry a key"
[policy.auto_retry]
mode = "enabled"
most = 1000
"""


class Clock:
    """In ms. `meanwhile` is called with each wait."""

    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self.now = now_ms()
        self._meanwhile = meanwhile

    def __call__(self) -> int:
        return self.now

    def wait(self, seconds: float) -> None:
        self.pass_by(seconds * 1000)

    def pass_by(self, ms: float) -> None:
        self.now += max(1, round(ms))
        self._meanwhile()


class AutoRetrying(Bench):
    """The queue `bull:mail`, the scanner, and workers that are moved by hand."""

    def __init__(self, queues: Store, state: Store, **settings: Any) -> None:
        super().__init__(queues, state)
        self.clock = Clock(self._work)
        self.works: Callable[[str], bool] | None = None  # a worker that runs every waiting job: whether it succeeds
        self.held: tuple[str, ...] = ()
        self.leads = True
        self.snapshot: Snapshot | None = None
        self.removes = False  # completed jobs are removed at once
        self.scanner = self.begin()

    def begin(self) -> AutoRetry:
        """A scheduler that has just started."""
        stores, leader_token = registry.registry(), LeaderToken(7, lambda: self.leads)
        holding = ScannerPermissions(stores, leader_token, lambda _: self.held).holding(ScannerKind.AUTO_RETRY)
        clock = self.clock
        return AutoRetry(stores, lambda: self.snapshot, leader_token, holding, now=clock, wait=clock.wait)

    def run(self, **asked: Any) -> ScannerReport:
        self.snapshot = self.look(self.flavour)
        return self.scanner.run(self.clock(), **asked)

    flavour: LibraryVersion = BULLMQ

    def follow(self) -> int:
        self.snapshot = self.look(self.flavour)
        return self.scanner.follow(self.clock())

    def fails(self, *ids: str, reason: str = "no route to host", ago: int = 3_600_000, **fields: Any) -> None:
        self.failed(*ids, reason=reason, at=self.clock() - ago, **fields)

    def completes(self, count: int) -> None:
        """So many in the last hour, all in one minute of it, as the library counts them."""
        counted(self.client, self.base, self.clock(), count)

    def pasts(self, queue: QueueRef | None = None) -> list[int]:
        """When each auto-retry was kept, of all jobs."""
        rows = BrakeState.objects.filter(kind=RETRY_HISTORY.name)
        return sorted(at for row in rows for at in RetryHistory.from_json(json.loads(row.state)).at)

    def most_in_a_minute(self) -> int:
        times = self.pasts()
        return max((sum(at <= other < at + 60_000 for other in times) for at in times), default=0)

    def _work(self) -> None:
        """What a worker does with all that waits, in one go."""
        if self.works is None:
            return
        for id in self.ids(JobState.WAITING)[::-1]:
            self.client.lrem(f"{self.base}:wait", 1, id)
            self.client.hincrby(f"{self.base}:{id}", "atm", 1)
            if self.works(id):
                self._complete(id)
            else:
                self.fail_again(id)

    def _complete(self, id: str) -> None:
        if self.removes:
            self.client.delete(f"{self.base}:{id}")
            return
        self.client.hset(f"{self.base}:{id}", mapping={"finishedOn": self.clock(), "returnvalue": "1"})
        self.client.zadd(f"{self.base}:completed", {id: self.clock()})

    def fail_again(self, id: str, reason: str = "still no route to host") -> None:
        at = self.clock()
        self.client.hset(f"{self.base}:{id}", mapping={"finishedOn": at, "failedReason": reason, "processedOn": at})
        self.client.zadd(f"{self.base}:failed", {id: at})


@contextmanager
def auto_retrying(
    queues: Store, state: Store, directory: Path, patch: pytest.MonkeyPatch, toml: str = ARMED
) -> Iterator[AutoRetrying]:
    config_of(directory, state, {"main": queues})
    path = directory / "unstall.toml"
    path.write_text(path.read_text() + "\n" + toml)
    patch.setenv("UNSTALL_CONFIG", str(path))
    registry.reset()
    windows.forget()
    bullmq(queues.client, "bull:mail")
    yield AutoRetrying(queues, state)
    registry.reset()


def counted(client: redis.Redis, base: str, now: int, count: int = 100_000) -> None:
    """A queue that completed so many within the last hour, as its library's metrics say."""
    key, minute = f"{base}:metrics:completed", now // 60_000 - 10
    client.hset(key, mapping={"count": count, "prevTS": minute * 60_000, "prevCount": 0})
    client.rpush(f"{key}:data", 0)


def done(report: ScannerReport) -> list[str]:
    """The jobs that went."""
    return [find.job.id for find in report.finds if find.outcome is Outcome.DONE]


def noted(jobs: Bench, act: Action, *ids: str) -> None:
    """An act as the audit has it, whatever became of the job."""
    order = ActionCommand(act, jobs.ref, ADMIN, "because", tuple(ExpectedJob(id, JobState.ACTIVE) for id in ids))
    intent = audit_log.write_intent(order, {}, ids)
    audit_log.write_outcome(intent, order, {}, dict.fromkeys(ids, Outcome.DONE))
