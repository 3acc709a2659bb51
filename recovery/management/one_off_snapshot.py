"""Takes a snapshot for a command: discovers all queues and counts them once, without a running scheduler."""

from __future__ import annotations

from recovery import shared_clock
from recovery.domain.queues.types import DeploymentSample, Snapshot
from recovery.scanners.collect.collector import Collector
from recovery.scanners.discovery.known_queues import KnownQueues
from recovery.scanners.discovery.scanner import Discoverer
from recovery.stores.registry import ConnectionRegistry


def take_snapshot(registry: ConnectionRegistry) -> Snapshot:
    """Takes a snapshot and stores it nowhere. A deployment that does not answer has its error in it."""
    now, roster = shared_clock.now(), KnownQueues()
    Discoverer(registry, roster, remembers=False).run(now)
    collector = Collector(registry, roster)
    try:
        return collector.look(now)
    finally:
        collector.close()


def trouble(deployment: DeploymentSample) -> str:
    """Returns why a deployment does not answer, and what to do about it."""
    return f"{deployment.name} ({deployment.target}) does not answer: {deployment.error}. {deployment.advice}"
