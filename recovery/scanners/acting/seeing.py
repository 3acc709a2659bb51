"""Adapts the collector and the discovery to runs like those of every other scanner, reported in numbers."""

from __future__ import annotations

from recovery.domain.refs import QueueRef
from recovery.domain.scans import Report
from recovery.scanners.acting.turn import Run
from recovery.scanners.snapshot.collect import Collector
from recovery.scanners.snapshot.discover import Discoverer


def collecting(collector: Collector) -> Run:
    def run(now: int, *, observes: bool = False, queue: QueueRef | None = None) -> Report:
        snapshot = collector.run(now)
        well = [one for one in snapshot.deployments if not one.error]
        faults = tuple(f"{one.name}: {one.error}." for one in snapshot.deployments if one.error)
        looked = sum(not sample.error for sample in snapshot.queues) or len(well)
        return Report(looked, faults=faults, count=len(snapshot.queues))

    return run


def discovering(discoverer: Discoverer) -> Run:
    def run(now: int, *, observes: bool = False, queue: QueueRef | None = None) -> Report | None:
        return Report(discoverer.known, count=discoverer.known) if discoverer.run(now) else None

    return run
