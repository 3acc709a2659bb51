"""Collects the values of one scrape from the cached state, and decides which of them are recent enough to report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dashboard.live.cached_state import CachedState, SnapshotHealth
from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.metrics.counters import MetricCounters
from recovery.domain.queues.types import QueueSample
from recovery.domain.stuck.inbox import StuckTally
from recovery.metrics import tally_store
from recovery.reads.stuck import inbox_store

MISSED = 3  # passes of the orphan watch; older verdicts are not reported
SLACK = 15_000  # ms: another scheduler takes over within this time
TALLIES_FOR = 60_000  # ms: four counts


@dataclass(frozen=True, slots=True)
class ScrapeInput:
    """Values of one scrape; `queues` are those with lines of their own, `found` is how many queues there are."""

    now: int
    config: Config
    image: CachedState
    health: SnapshotHealth
    queues: tuple[QueueSample, ...]
    found: int
    silent: frozenset[str]  # deployments that did not answer: what is known of them is old
    looks: (
        Mapping[QueueRef, StuckTally] | None
    )  # queues with something active at the last look; None: it is too long ago
    totals: Mapping[bytes, bytes]  # as they are kept
    tallies: MetricCounters | None

    @classmethod
    def of(cls, image: CachedState, config: Config, now: int) -> ScrapeInput:
        snapshot, packed = image.snapshot, image.packed
        samples = snapshot.queues if snapshot else ()
        looks = _looks(packed.inbox, config, now, is_led=image.leader is not None and image.leader.leads)
        return cls(
            now=now,
            config=config,
            image=image,
            health=image.health(now),
            queues=_chosen(samples, looks or {}, config.metrics.queues),
            found=len(samples),
            silent=frozenset(one.name for one in snapshot.deployments if one.error) if snapshot else frozenset(),
            looks=looks,
            totals=packed.totals,
            tallies=tally_store.decode(packed.tallies) if packed.tallies else None,
        )

    @property
    def counted_lately(self) -> MetricCounters | None:
        """The tallies, or None if their gauges are too old."""
        counted = self.tallies
        return counted if counted and self.now - counted.at < TALLIES_FOR else None

    def is_known(self, sample: QueueSample) -> bool:
        """Returns True if the queue's numbers are from the last snapshot and that is recent."""
        return not self.health.stale and not sample.is_old and sample.ref.deployment not in self.silent


def _looks(packed: bytes | None, config: Config, now: int, *, is_led: bool) -> dict[QueueRef, StuckTally] | None:
    """Returns the tallies of the last pass, or None if it is too old.

    Without a leader no scanner repairs anything, so the tallies then promise no recovery by a scanner.
    """
    found = inbox_store.tallies(packed) if packed else None
    if found is None or now - found[0] > MISSED * config.orphans_every * 1000 + SLACK:
        return None
    return {tally.queue: tally if is_led else tally.unpromised for tally in found[1]}


def _chosen(
    samples: tuple[QueueSample, ...], looks: Mapping[QueueRef, StuckTally], most: int
) -> tuple[QueueSample, ...]:
    """Chooses at most `most` queues: those with stuck jobs first, then always the same ones."""
    if len(samples) <= most:
        return samples

    def place(sample: QueueSample) -> tuple[bool, QueueRef]:
        tally = looks.get(sample.ref)
        return not (tally and tally.stuck), sample.ref

    return tuple(sorted(samples, key=place)[:most])
