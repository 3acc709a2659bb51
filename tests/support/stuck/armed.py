"""The scheduler's orphan-watch with the leave to act on all queues, and its Redis pause: looked through by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from recovery import shared_clock
from recovery.actions.safety_limits import auto_retry_limits
from recovery.actions.safety_limits.compare_and_set import swap_one
from recovery.domain.identifiers import QueueRef
from recovery.domain.safety_limits.redis_pause import RedisPause, RedisPauseHold, RedisPauseTrigger
from recovery.domain.scanners.types import ScannerKind, ScannerReport
from recovery.domain.scheduler.leader_token import LeaderToken, always_leader
from recovery.domain.time_units import SECOND
from recovery.models import AuditEntry
from recovery.reads.safety_limits import limit_rows
from recovery.reads.safety_limits.limit_rows import REDIS_PAUSE, SafetyLimitScope
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.registry import ScannerRegistry
from recovery.stores import registry
from recovery.stores.state.shared_read import windows
from tests.support.acting import ADMIN
from tests.support.stores.stores import Store
from tests.support.stuck.watch_bench import SHORT, config_for

_ARMED = SHORT + '[policy]\norphan_watch = { mode = "enabled" }\n'
_PLACE = SafetyLimitScope("main")


class Armed:
    def __init__(self) -> None:
        self.registry = registry.registry()
        self._roster = KnownQueues()
        self._collector = Collector(self.registry, self._roster)
        self.restart()

    def restart(self) -> None:
        """Another process leads: it knows what was kept, and nothing else."""
        self._collector.close()
        self._collector = Collector(self.registry, self._roster)
        self.crew = ScannerRegistry(
            self.registry, lambda: self._collector.newest, LeaderToken(shared_clock.now() // 1000, always_leader)
        )

    def discover(self) -> None:
        Discoverer(self.registry, self._roster, remembers=False).run(_now())

    def look(self) -> ScannerReport:
        """What a scheduler does every few seconds."""
        now = _now()
        self._collector.run(now)
        windows.forget()
        report = self.crew.run_of(ScannerKind.ORPHAN_WATCH)(now)
        assert report is not None
        return report

    def settle(self) -> None:
        """Found, looked at, and nobody minds that the store was started for the test."""
        self.discover()
        self.look()
        auto_retry_limits.release(ADMIN, REDIS_PAUSE.name, "main", "", "", "it is a test's")
        assert self.look().finds == ()
        assert self.why == []

    @property
    def pause(self) -> RedisPause:
        return limit_rows.read_row(REDIS_PAUSE, _PLACE).value

    @property
    def why(self) -> list[RedisPauseTrigger]:
        """What holds it right now."""
        return [hold.why for hold in self.pause.holding(_now())]

    @property
    def acts(self) -> int:
        return AuditEntry.objects.filter(phase="outcome", actor_kind="scanner").count()

    def pass_by(self, ms: int) -> None:
        """As if everything that holds had begun so long ago."""

        def older(hold: RedisPauseHold) -> RedisPauseHold:
            return replace(hold, since=hold.since - ms, until=hold.until - ms if hold.until else None)

        swap_one(REDIS_PAUSE, _PLACE, lambda pause, _: replace(pause, holds=tuple(map(older, pause.holds))))

    def close(self) -> None:
        self._collector.close()
        registry.reset()


@contextmanager
def armed(directory: Path, state: Store, where: Store | str, patch: pytest.MonkeyPatch) -> Iterator[Armed]:
    config_for(directory, state, where, _ARMED)
    patch.setenv("UNSTALL_CONFIG", str(directory / "unstall.toml"))
    registry.reset()
    one = Armed()
    yield one
    one.close()


def held_jobs(client: Store, ref: QueueRef, ids: list[str], *, ttl: int = 600 * SECOND) -> None:
    """Each of these active jobs has a worker that lives."""
    pipeline = client.client.pipeline(transaction=False)
    for id in ids:
        pipeline.set(f"{ref.base}:{id}:lock", f"worker:{id}", px=ttl)
    pipeline.execute()


def _now() -> int:
    return shared_clock.now()
