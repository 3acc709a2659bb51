"""Measures for how long each deployment has not answered, as far as this process knows, and reports it to the state
store; if that is away too, later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import redis

from recovery.domain.time_units import SECOND
from recovery.reads.queues import outages
from recovery.scanners.collect.deployment_sampler import CollectedDeployment


class OutageTracker:
    """Silence of each deployment between two answers. For one thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}  # by deployment: its last answer
        self._ailing: set[str] = set()  # those that failed since
        self._untold: dict[str, int | None] = {}  # as `outages.note` takes it

    @property
    def owes(self) -> bool:
        """Returns True if the state store does not know yet of a deployment that was, or may have been, silent."""
        return any(gap != 0 for gap in self._untold.values())

    def hear(self, looks: Iterable[CollectedDeployment]) -> None:
        for look in looks:
            if look.deployment.error or look.is_late:
                self.missed(look.deployment.name)
            elif look.is_asked:
                self.came(look.deployment.name)

    def missed(self, deployment: str) -> None:
        self._ailing.add(deployment)

    def came(self, deployment: str) -> None:
        now = self._clock()
        gap, untold = self._gap(deployment, now), self._untold.get(deployment, 0)
        self._untold[deployment] = None if gap is None or untold is None else max(gap, untold)
        self._at[deployment] = now
        self._ailing.discard(deployment)

    def tell(self, store: redis.Redis) -> None:
        """Stores the silence of deployments that have answered again. Raises StoreError; then it is kept for later."""
        if self._untold:
            outages.note(store, self._untold)
            self._untold = {}

    def _gap(self, deployment: str, now: float) -> int | None:
        before = self._at.get(deployment)
        if before is None:
            return None
        return round((now - before) * SECOND) if deployment in self._ailing else 0
