"""The scheduler's orphan-watch with the leave to act on all queues, and its brake: looked through by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from recovery import shared_clock
from recovery.actions import brakes
from recovery.actions.swap import swap_one
from recovery.connections import registry
from recovery.domain.ages import SECOND
from recovery.domain.brake import Brake, Hold, Why
from recovery.domain.mandate import Mandate, always
from recovery.domain.refs import QueueRef
from recovery.domain.scans import Report, Scan
from recovery.models import AuditEntry
from recovery.reads import brake_rows
from recovery.reads.brake_rows import STORE, Place
from recovery.reads.shared import windows
from recovery.scanners.crew import Crew
from recovery.scanners.snapshot.collect import Collector
from recovery.scanners.snapshot.discover import Discoverer
from recovery.scanners.snapshot.roster import Roster
from tests.acting import ADMIN
from tests.stores import Store
from tests.watch_bench import SHORT, config_for

_ARMED = SHORT + '[policy]\norphan_watch = { mode = "act" }\n'
_PLACE = Place("main")


class Armed:
    def __init__(self) -> None:
        self.registry = registry.registry()
        self._roster = Roster()
        self._collector = Collector(self.registry, self._roster)
        self.restart()

    def restart(self) -> None:
        """Another process leads: it knows what was kept, and nothing else."""
        self._collector.close()
        self._collector = Collector(self.registry, self._roster)
        self.crew = Crew(self.registry, lambda: self._collector.newest, Mandate(shared_clock.now() // 1000, always))

    def discover(self) -> None:
        Discoverer(self.registry, self._roster, remembers=False).run(_now())

    def look(self) -> Report:
        """What a scheduler does every few seconds."""
        now = _now()
        self._collector.run(now)
        windows.forget()
        report = self.crew.run_of(Scan.ORPHAN_WATCH)(now)
        assert report is not None
        return report

    def settle(self) -> None:
        """Found, looked at, and nobody minds that the store was started for the test."""
        self.discover()
        self.look()
        brakes.release(ADMIN, STORE.name, "main", "", "", "it is a test's")
        assert self.look().finds == ()
        assert self.why == []

    @property
    def brake(self) -> Brake:
        return brake_rows.one(STORE, _PLACE).value

    @property
    def why(self) -> list[Why]:
        """What holds it right now."""
        return [hold.why for hold in self.brake.holding(_now())]

    @property
    def acts(self) -> int:
        return AuditEntry.objects.filter(phase="outcome", actor_kind="scanner").count()

    def pass_by(self, ms: int) -> None:
        """As if everything that holds had begun so long ago."""

        def older(hold: Hold) -> Hold:
            return replace(hold, since=hold.since - ms, until=hold.until - ms if hold.until else None)

        swap_one(STORE, _PLACE, lambda brake, _: replace(brake, holds=tuple(map(older, brake.holds))))

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
