"""Updates the Redis pause with each pass over a deployment, and tells if auto-recovery is paused right now.

Its state is in the database, so that a new scheduler knows what the one before it saw. How long a deployment did not
answer is noted in the state store by the collector: a Redis and a database that are away together end the term of the
leader, and the pass that finds the locks expired is the first one of another leader. A scheduler that takes over from
one that died is back within half of a usual lock; one that was stopped for an hour pauses for two lock lengths once it
is back, because it cannot know how Redis was meanwhile.

A scanner that is about to act calls `holding`, which asks Redis once more: it may have failed over since the last pass.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from threading import Lock

from recovery.actions.safety_limits.compare_and_set import swap_one
from recovery.domain.identifiers import printable
from recovery.domain.safety_limits.redis_pause import RedisObservation, RedisPause
from recovery.domain.time_units import SECOND
from recovery.errors import ConfigError, NotRecorded, StoreError
from recovery.reads.queues import outages
from recovery.reads.queues.outages import Outage
from recovery.reads.safety_limits import paused_deployments
from recovery.reads.safety_limits.limit_rows import REDIS_PAUSE, SafetyLimitScope
from recovery.scanners.orphan_watch.lost_locks import LostLockCounts
from recovery.scanners.orphan_watch.redis_identity import RedisIdentity, read_redis_identity
from recovery.stores.registry import ConnectionRegistry

log = logging.getLogger(__name__)

FAILED_FOR = 60.0  # seconds that a failed pass counts, when no other follows: longer than any usual interval


@dataclass(frozen=True, slots=True)
class _Failure:
    """Last failed pass of this process, none has succeeded since; `at` in seconds of its own clock."""

    at: float
    why: str


class RedisPauseGuard:
    """Redis pause of all deployments, for all scanners of one process."""

    def __init__(self, registry: ConnectionRegistry, clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._failures: dict[str, _Failure] = {}
        self._held: set[str] = set()
        self._lock = Lock()

    def seen(self, deployment: str, alive: RedisIdentity, losses: LostLockCounts) -> str:
        """Records a pass that succeeded; returns what went wrong with storing it, "" for nothing."""
        try:
            outage = self._outage(deployment)
        except StoreError as error:
            self.failed(
                deployment, f"it is unknown whether it was unavailable before, because the state store {error.reason}"
            )
            return str(error)
        with self._lock:
            self._failures.pop(deployment, None)
        look = replace(
            _look(alive),
            active=losses.active,
            lost=losses.lost,
            gone=losses.gone,
            bare=losses.bare,
            older=losses.older,
            silent=outage.lasted,
            back=outage.ended,
        )
        length = -(-losses.lock_length // SECOND) * SECOND  # whole seconds: a row that changes is a write
        try:
            pause, at = self._note(deployment, replace(look, lock_length=length or None))
        except NotRecorded as error:
            return str(error)
        self._tell(deployment, is_held=bool(pause.holding(at)))
        return ""

    def failed(self, deployment: str, why: str) -> None:
        """Records a pass that failed."""
        with self._lock:
            self._failures[deployment] = _Failure(self._clock(), why)

    def holding(self, deployment: str) -> tuple[str, ...]:
        """Returns why scanners must not act on the deployment now, a sentence each; empty if they may."""
        if deployment not in {one.name for one in self._registry.config.deployments}:
            return ()  # no Redis, or nothing at all
        if blind := self._blind(deployment):
            return (blind,)
        try:
            alive = read_redis_identity(self._registry.wire(deployment))
            pause, now = self._note(deployment, _look(alive))
        except StoreError as error:
            return (f"{printable(deployment)} does not answer: {error.reason}.",)
        except NotRecorded as error:
            return (str(error),)
        return pause.words(now) if pause.holding(now) else ()

    def _blind(self, deployment: str) -> str:
        failure = self._failures.get(deployment)
        if failure is None or self._clock() - failure.at > FAILED_FOR:
            return ""
        return f"The last check of {printable(deployment)} failed: {failure.why}."

    def _outage(self, deployment: str) -> Outage:
        """Reads how long the deployment did not answer. Raises StoreError."""
        try:
            return outages.last(self._registry.state(), deployment)
        except ConfigError:  # no state store, so no scheduler to take over from
            return Outage()

    def _tell(self, deployment: str, *, is_held: bool) -> None:
        """Publishes paused deployments to open pages, at each pass while any is; page loads read the database."""
        before = set(self._held)
        (self._held.add if is_held else self._held.discard)(deployment)
        if not before and not self._held:
            return
        try:
            paused_deployments.publish(self._registry.state(), self._held)
        except (ConfigError, StoreError) as error:
            log.debug("open pages are not updated about safety limits: %s", error)

    def _note(self, deployment: str, look: RedisObservation) -> tuple[RedisPause, int]:
        """Updates the stored state; returns it with the time of the database."""
        told = 0

        def change(pause: RedisPause, now: int) -> RedisPause:
            nonlocal told
            told = now
            return pause.seen(replace(look, at=now))

        return swap_one(REDIS_PAUSE, SafetyLimitScope(deployment), change), told


def _look(alive: RedisIdentity) -> RedisObservation:
    """Returns an observation of Redis alone; the database adds the time."""
    return RedisObservation(0, run_id=alive.run_id, role=alive.role, uptime=alive.uptime)
