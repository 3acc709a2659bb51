"""Adapts the collector and the discovery to runs like those of every other scanner, reported in numbers."""

from __future__ import annotations

from recovery.domain.identifiers import QueueRef
from recovery.domain.scanners.types import ScannerReport
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.scanner import Discoverer
from recovery.scanners.runtime.scanner_runner import ScannerFunction


def collect_run(collector: Collector) -> ScannerFunction:
    def run(now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport:
        snapshot = collector.run(now)
        well = [one for one in snapshot.deployments if not one.error]
        faults = tuple(f"{one.name}: {one.error}." for one in snapshot.deployments if one.error)
        looked = sum(not sample.error for sample in snapshot.queues) or len(well)
        return ScannerReport(looked, faults=faults, count=len(snapshot.queues))

    return run


def discover_run(discoverer: Discoverer) -> ScannerFunction:
    def run(now: int, *, dry_run: bool = False, queue: QueueRef | None = None) -> ScannerReport | None:
        return ScannerReport(discoverer.known, count=discoverer.known) if discoverer.run(now) else None

    return run
