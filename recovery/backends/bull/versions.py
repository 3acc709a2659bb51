"""Describes what Bull 3 and 4 keep, as far as a reader must know it."""

from __future__ import annotations

from recovery.backends.base import Capabilities
from recovery.backends.redis_common.layout import Layout, StatePlace
from recovery.domain.jobs import JobState
from recovery.domain.queues.types import LibraryVersion

METRICS = 4  # since 4.7.0

LAYOUT = Layout(
    (
        StatePlace(JobState.WAITING, b"wait", is_list=True),
        StatePlace(JobState.PAUSED, b"paused", is_list=True),
        StatePlace(JobState.DELAYED, b"delayed"),
        StatePlace(JobState.ACTIVE, b"active", is_list=True),
        StatePlace(JobState.COMPLETED, b"completed", newest_first=True),
        StatePlace(JobState.FAILED, b"failed", newest_first=True),
    )
)

_STATES = (JobState.ACTIVE, JobState.WAITING, JobState.DELAYED, JobState.COMPLETED, JobState.FAILED, JobState.PAUSED)


def capabilities(flavour: LibraryVersion) -> Capabilities:
    return Capabilities(
        states=_STATES,
        schedulers=True,
        families=False,
        metrics=flavour.major is None or flavour.major >= METRICS,
        names_workers=False,
        global_concurrency=False,
        global_limit=False,
    )
