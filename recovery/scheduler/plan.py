"""The tables of scanners: what runs in the leader, what in one who can only read; how often, and when first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from recovery.actions import bulk
from recovery.config import Config
from recovery.connections.registry import Registry
from recovery.domain.mandate import Mandate, May, always
from recovery.scanners.collect import Collector
from recovery.scanners.discover import Discoverer
from recovery.scanners.orphan_watch import OrphanWatch
from recovery.scanners.prune import Pruner
from recovery.scanners.record import Recorder
from recovery.scanners.roster import Roster

DISCOVER_LOOK = 2.0  # seconds: discovery decides itself what is due, this only bounds how late it notices
COLLECT_AFTER = 0.5  # seconds: discovery is through a small Redis by then, and the first snapshot is not empty
RECORD_AFTER = 4  # seconds after a minute closed: the snapshot is newer than the minute by then
ORPHANS_AFTER = 2.0  # seconds: behind the first snapshot
PRUNE_EVERY = 3600.0


@dataclass(frozen=True, slots=True)
class Entry:
    """One scanner. `run` takes the time in milliseconds."""

    name: str
    every: float  # seconds
    run: Callable[[int], object]
    jitter: float = 0.0
    first: float = 0.0  # seconds after the start
    second: int | None = None  # each minute at this second, instead of `every` since the start


@dataclass(frozen=True, slots=True)
class Plan:
    """All entries, none of which begins without leave.

    `stop` asks long runs to come to an end, `close` lets go of what is held when none is left.
    """

    entries: tuple[Entry, ...]
    stop: Callable[[], None]
    close: Callable[[], None]
    may: May = always


def reading(config: Config, registry: Registry, may: May) -> Plan:
    """While nobody can lead: what feeds the pages, and changes nothing but what they are fed from."""
    roster = Roster()
    discoverer = Discoverer(registry, roster)
    collector = Collector(registry, roster, may)
    return Plan(_seeing(config, discoverer, collector), discoverer.stop, collector.close, may)


def plan(config: Config, registry: Registry, mandate: Mandate) -> Plan:
    """For one term of the leader. Whoever leads again begins anew: meanwhile another may have changed everything."""
    roster = Roster()
    discoverer = Discoverer(registry, roster)
    collector = Collector(registry, roster, mandate.holds)
    recorder = Recorder(registry, lambda: collector.newest)
    orphan_watch = OrphanWatch(registry, lambda: collector.newest, may=mandate.holds)
    pruner = Pruner(registry, mandate.holds)
    runs = bulk.Runner(registry, may=mandate.holds)

    def stop() -> None:
        discoverer.stop()
        runs.stop()

    def close() -> None:
        collector.close()
        runs.close()

    return Plan(
        (
            *_seeing(config, discoverer, collector),
            Entry("orphan-watch", config.orphans_every, orphan_watch.run, first=ORPHANS_AFTER),
            # Once soon after the start, so that what is kept in Redis is on the screen before the first minute is over.
            Entry("record at start", 0, recorder.run, first=3 * config.collect_every),
            Entry("record", 60, recorder.run, second=RECORD_AFTER),
            Entry("bulk runs", bulk.EVERY, runs.run),
            Entry("prune", PRUNE_EVERY, pruner.run, jitter=60, first=60),
        ),
        stop,
        close,
        mandate.holds,
    )


def _seeing(config: Config, discoverer: Discoverer, collector: Collector) -> tuple[Entry, Entry]:
    return (
        Entry("discover", DISCOVER_LOOK, discoverer.run),
        Entry("collect", config.collect_every, collector.run, first=COLLECT_AFTER),
    )
