"""Queues looked at deep, as if at other times than now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recovery.domain.actions.types import Action, Outcome
from recovery.domain.queues.types import Snapshot, Worker
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.domain.time_units import MINUTE
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.scanners.runtime.permissions import ScannerPermissions
from recovery.scanners.stale_check.scanner import StaleCheck
from recovery.stores import registry
from tests.support.acting import Bench, set_up
from tests.support.stores.stores import Store
from tests.support.stuck.samples import BULLMQ
from tests.support.stuck.watching import now_ms


class Deep(Bench):
    """The queue `bull:mail`, looked at as if at other times."""

    def __init__(self, queues: Store, state: Store) -> None:
        super().__init__(queues, state)
        self.now = now_ms()
        self.flavour = BULLMQ
        self.workers: tuple[Worker, ...] = ()
        self.snapshot: Snapshot | None = None
        self.paused: tuple[str, ...] = ()
        self.called: list[int] = []
        self.check = self.begin()

    def begin(self, again: Callable[[int], object] | None = None) -> StaleCheck:
        """A scheduler that has just started."""
        leader_token = LeaderToken(7, always_leader)
        again = again or self.called.append
        stores = registry.registry()
        holding = ScannerPermissions(stores, leader_token, lambda _: self.paused).holding(ScannerKind.STALE_CHECK)
        return StaleCheck(stores, lambda: self.snapshot, leader_token, holding, again)

    def watched(self, ago: int) -> None:
        """The orphan-watch saw everything as it is now, twice, so many minutes ago."""
        for earlier in (ago + 1, ago):
            at = self.now - earlier * MINUTE
            taken = replace(self.taken(), taken_at=at)
            OrphanWatch(registry.registry(), lambda taken=taken: taken).run(at)  # type: ignore[misc]

    def taken(self) -> Snapshot:
        taken = self.look(self.flavour)
        samples = tuple(
            sample._replace(workers=len(self.workers)) if sample.ref == self.ref else sample for sample in taken.queues
        )
        return replace(taken, workers=self.workers, queues=samples)

    def run(self, *, later: int = 0, **asked: Any) -> ScannerReport:
        """So many minutes later."""
        self.snapshot = replace(self.taken(), taken_at=self.now + later * MINUTE)
        return self.check.run(self.now + later * MINUTE, **asked)

    def connected(self, name: str, command: str = "bzpopmin") -> None:
        worker = Worker(self.ref, name, "10.0.0.9:5", 60, 1, command, str(len(self.workers)))
        self.workers = (*self.workers, worker)


@contextmanager
def deep_bench(
    queues: Store, state: Store, directory: Path, patch: pytest.MonkeyPatch, toml: str = ""
) -> Iterator[Deep]:
    with set_up(queues, state, directory, patch):
        path = directory / "unstall.toml"
        path.write_text(path.read_text() + "\n" + toml)
        registry.reset()
        yield Deep(queues, state)


def done(report: ScannerReport) -> list[tuple[str, Action | None]]:
    return [(find.job.id, find.act) for find in report.finds if find.outcome is Outcome.DONE]


def said(report: ScannerReport) -> dict[str, str]:
    """Why nothing was done, by job."""
    return {find.job.id: find.policy for find in report.finds if find.outcome is None}
