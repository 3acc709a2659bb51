"""Writes the heartbeat key by which pages know that a scheduler runs, and which; it expires when it is not renewed.

The leader writes it. While the leader is unknown it is a claim: of all schedulers that can only read, its owner reads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import redis

from recovery import shared_clock
from recovery.domain.scheduler.consoles import Console
from recovery.errors import ConfigError, StoreError
from recovery.reads.scanners import scheduler_status
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.scheduler.lease_holder import LeaseHolder
from recovery.scheduler.lease_row import LeaseGrant
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys

log = logging.getLogger(__name__)

LIFE = 16  # seconds: three heartbeats may be lost before a page reports that no scheduler runs
_CLOCK_KEPT = 7 * 86_400  # seconds


class SchedulerHeartbeatWriter:
    def __init__(self, registry: ConnectionRegistry, me: LeaseHolder) -> None:
        self._registry = registry
        self._me = me
        self._reads_since = 0
        self.may_read = False

    def lead(self, grant: LeaseGrant, now: int, consoles: tuple[Console, ...] = ()) -> None:
        """Writes the heartbeat of the leader, whatever another process has written, and sets the shared clock."""
        self.may_read = False
        store = self._registry.state()
        with redis_errors.guarded(store), store.pipeline(transaction=False) as pipeline:
            pipeline.set(state_keys.SCHEDULER, self._sign(now, grant.since, grant.epoch, consoles), ex=LIFE)
            pipeline.time()
            clock = scheduler_status.time_of(pipeline.execute()[-1], None)
            shared_clock.ours.follow(clock)
            store.set(state_keys.CLOCK, scheduler_status.offset(shared_clock.now() - clock), ex=_CLOCK_KEPT)

    def claim(self, now: int) -> None:
        """Claims the right to read: `may_read` becomes True if the key is free or ours, never while a leader has it."""
        since = self._reads_since if self.may_read else now
        self.may_read = False
        sign = self._sign(now, since, None)
        shared_clock.ours.follow(scheduler_status.fetch_time(self._registry.state()))
        self.may_read = self._replace(lambda pipeline: pipeline.set(state_keys.SCHEDULER, sign, ex=LIFE), or_none=True)
        self._reads_since = since

    def set_clock(self) -> None:
        """Sets the clock of this process to the store's before runs are planned; while the store is away it is kept."""
        try:
            shared_clock.ours.set(scheduler_status.fetch_time(self._registry.state()))
        except (ConfigError, StoreError) as error:
            log.info("this process uses its local clock: %s", error)

    def leave(self) -> None:
        """Deletes the heartbeat, unless another process has written it since."""
        self._replace(lambda pipeline: pipeline.delete(state_keys.SCHEDULER), or_none=False)

    def _sign(self, now: int, since: int, epoch: int | None, consoles: tuple[Console, ...] = ()) -> bytes:
        return SchedulerStatus(self._me.host, self._me.pid, epoch, since, now, self._me.token, consoles).encode()

    def _replace(self, change: Callable[[redis.client.Pipeline], object], *, or_none: bool) -> bool:
        """Changes the key in a transaction if it is ours; returns False if it is, or becomes, another process's."""
        store = self._registry.state()
        with redis_errors.guarded(store), store.pipeline() as pipeline:
            pipeline.watch(state_keys.SCHEDULER)  # type: ignore[no-untyped-call]  # redis-py leaves it so
            found: object = pipeline.get(state_keys.SCHEDULER)
            sign = SchedulerStatus.decode(found)
            if not (or_none if found is None else sign is not None and sign.id == self._me.token):
                return False
            pipeline.multi()
            change(pipeline)
            try:
                pipeline.execute()
            except redis.WatchError:
                return False
            return True
