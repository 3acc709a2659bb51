"""The orphan-watch on a bench: a collector and a watch over a test's stores, looked at by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from recovery import shared_clock
from recovery.config import Config, load
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import Snapshot
from recovery.domain.stuck.inbox import StuckInbox
from recovery.domain.stuck.types import StuckJob, VerdictKind
from recovery.models import Incident
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.orphan_watch.scanner import OrphanWatch
from recovery.stores.redis.client import EncodedBatch, StoreClient
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.stores import Store
from tests.support.waiting import until

SHORT = "[thresholds]\nstalled_interval = 1\n"
_FIELDS = {"name": "mail", "data": "{}", "timestamp": 1_760_000_000_000}


def config_for(directory: Path, state: Store, store: Store | str, rest: str = "") -> Config:
    """One deployment `main`, and whatever else is written in TOML."""
    url = store if isinstance(store, str) else store.url
    (directory / "unstall.toml").write_text(
        f'[state]\nurl = "{state.url}"\n[[deployments]]\nname = "main"\nurl = "{url}"\n{rest}'
    )
    return load({}, directory=directory)


class WatchBench:
    """What a scheduler does every few seconds, done when a test asks for it."""

    def __init__(self, config: Config) -> None:
        self.registry = ConnectionRegistry(config)
        self.roster = KnownQueues()
        self.collector = Collector(self.registry, self.roster)
        self.watch = OrphanWatch(self.registry, lambda: self.collector.newest)

    def discover(self) -> None:
        Discoverer(self.registry, self.roster, remembers=False).run(_now())

    def look(self, *, later: int = 0) -> StuckInbox:
        """Collect and look, as if `later` ms had passed."""
        now = _now() + later
        self.collector.look(now)
        return self.watch.run(now)

    @property
    def snapshot(self) -> Snapshot:
        assert self.collector.newest is not None
        return self.collector.newest

    def kinds(self, ref: QueueRef) -> dict[VerdictKind, int]:
        tally = self.look().tally(ref)
        return dict(tally.kinds) if tally else {}

    def sees(self, ref: QueueRef, kind: VerdictKind, *, seconds: float = 15.0) -> StuckJob:
        """Look again and again until a job of this queue has this verdict."""
        return until(lambda: self._one(ref, kind), seconds, f"{kind} in {ref}")

    def until_kind(self, ref: QueueRef, kind: VerdictKind, *, seconds: float = 15.0) -> None:
        until(lambda: kind in self.kinds(ref), seconds, f"{kind} in {ref}")

    def _one(self, ref: QueueRef, kind: VerdictKind) -> StuckJob | None:
        inbox = self.look()
        return next((row for row in inbox.rows if row.job.queue == ref and row.verdict.kind is kind), None)

    def close(self) -> None:
        self.collector.close()
        self.registry.close()


Make = Callable[..., WatchBench]


class Counted:
    """Counts what goes over a wire while it is in effect."""

    def __init__(self, wire: StoreClient) -> None:
        self._wire = wire
        self._send = wire.send
        self.calls = 0
        self.commands = 0

    def __enter__(self) -> Counted:
        self._wire.send = self._count  # type: ignore[method-assign] # put back at the end
        return self

    def __exit__(self, *_: object) -> None:
        self._wire.send = self._send  # type: ignore[method-assign] # as above

    def _count(self, batch: EncodedBatch) -> list[Any]:
        self.calls += 1
        self.commands += len(batch)
        return self._send(batch)


def active(
    store: Store, base: str, *ids: str, flavour: str = "bullmq", version: str = "5.81.5", **fields: str | int
) -> None:
    """A queue with these jobs active and without locks, the first one the oldest."""
    pipeline = store.client.pipeline(transaction=False)
    if flavour == "bullmq":
        pipeline.hset(f"{base}:meta", "version", f"bullmq:{version}")
    pipeline.incrby(f"{base}:id", len(ids))
    for id in ids:
        own = {"opts": '{"attempts":1,"timestamp":1}'} if flavour == "bull" else {}
        pipeline.hset(f"{base}:{id}", mapping={**_FIELDS, **own, **fields})
        pipeline.lpush(f"{base}:active", id)
    pipeline.execute()


def requeued(store: Store, ref: QueueRef, id: str = "1") -> None:
    """As the library's watchdog does it."""
    store.client.lrem(f"{ref.base}:active", 1, id)
    store.client.hincrby(f"{ref.base}:{id}", "stc", 1)
    store.client.rpush(f"{ref.base}:wait", id)


def restarted(old: WatchBench, make: Callable[[], WatchBench]) -> WatchBench:
    """A new process in place of the old one: only the state store and the database remember."""
    roster = old.roster
    new = make()
    for name in (deployment.name for deployment in new.registry.config.deployments):
        new.roster.replace(name, roster.listing(name).queues)
    return new


def _now() -> int:
    return shared_clock.now()


def contents(store: Store) -> dict[bytes, bytes]:
    """Every key as Redis dumps it."""
    keys: list[bytes] = sorted(store.client.scan_iter())
    return {key: store.client.dump(key) or b"" for key in keys}


def orphan(one: WatchBench, store: Store, ref: QueueRef, **fields: str | int) -> None:
    """One proven orphan with an open incident."""
    active(store, ref.base, "1", **fields)
    one.discover()
    assert one.look().stuck == 1
    assert Incident.objects.filter(closed_at=None).count() == 1
