"""For how long each deployment gave no answer before this one, as far as one looker knows. What it cannot tell to the
state store now, it tells later: both may have been away together.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import redis

from recovery.domain.ages import SECOND
from recovery.reads import outages
from recovery.scanners.snapshot.watch import Look


class Answers:
    """One thread at a time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at: dict[str, float] = {}  # by deployment: its last answer
        self._ailing: set[str] = set()  # those that failed since
        self._untold: dict[str, int | None] = {}  # as `outages.note` takes it

    @property
    def owes(self) -> bool:
        """Whether somebody was silent, or may have been, and the state store does not know it."""
        return any(gap != 0 for gap in self._untold.values())

    def hear(self, looks: Iterable[Look]) -> None:
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
        """Of those that have answered since. Raises StoreError; then nothing is forgotten."""
        if self._untold:
            outages.note(store, self._untold)
            self._untold = {}

    def _gap(self, deployment: str, now: float) -> int | None:
        before = self._at.get(deployment)
        if before is None:
            return None
        return round((now - before) * SECOND) if deployment in self._ailing else 0
