"""Snapshots made by hand, for what is decided without a store."""

from __future__ import annotations

from typing import Any

from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import (
    DeploymentSample,
    JobCounts,
    LibraryVersion,
    QueueLibrary,
    QueueSample,
    Rates,
    Snapshot,
)

NOW = 1_795_000_000_000
BULLMQ = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5", ("meta.version = bullmq:5.81.5",))
EMPTY = JobCounts(0, 0, 0, 0, 0, 0, 0, 0)


def counts(**some: int | None) -> JobCounts:
    """Every state known and empty, but for these."""
    return EMPTY._replace(**some)


def queue(base: str = "bull:mail", *, deployment: str = "main", **facts: Any) -> QueueSample:
    """A healthy queue of which everything is known, but for these facts."""
    healthy: dict[str, Any] = {
        "flavour": BULLMQ,
        "counts": EMPTY,
        "is_paused": False,
        "stalled_check_ttl": 12_000,
        "workers": 2,
    }
    return QueueSample(QueueRef(deployment, base), **(healthy | facts))


def abandoned(base: str = "bull:jobs", active: int = 9, **facts: Any) -> QueueSample:
    return queue(base, counts=counts(active=active), workers=0, stalled_check_ttl=None, **facts)


def rates(completed: int | None, failed: int | None, minutes: int = 60) -> Rates:
    return Rates((completed,) * minutes, (failed,) * minutes, "library")


def snapshot(*queues: QueueSample, number: int = 7, silent: str = "", taken_at: int = NOW) -> Snapshot:
    """`silent`: the deployment that does not answer."""
    names = sorted({sample.ref.deployment for sample in queues} | {"main"})
    deployments = tuple(
        DeploymentSample(name, f"redis://{name}:6379", taken_at, error="connection refused" if name == silent else "")
        for name in names
    )
    return Snapshot(number, taken_at, deployments, queues)
