"""Caches the newest snapshot in the memory of this process; pages and streams read it here and nowhere else.

In a web process one asyncio task updates it: it subscribes to the state store's channel, and reads by itself
every two seconds in case a message was lost. In any other process (a management command, a test) the store
is read on demand, at most once a second.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from threading import Lock
from typing import Any

from redis.asyncio import Redis

from dashboard.live.cached_state import CachedState, SnapshotHealth
from recovery import config, shared_clock
from recovery.domain.gate.state_machine import Gate
from recovery.domain.queues.types import Snapshot
from recovery.domain.scanners.types import ScannerKind
from recovery.domain.servers.node_exporter import NodeProblem
from recovery.domain.servers.samples import Server
from recovery.errors import UnstallError
from recovery.reads.queues.snapshot_store import SnapshotOfOtherVersion
from recovery.reads.scanners.last_runs import LastScannerRun
from recovery.reads.scanners.scheduler_status import SchedulerStatus
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry
from recovery.stores.state import async_client, state_keys

log = logging.getLogger(__name__)

POLL_SECONDS = 2.0  # a lost message delays a page by no more than this
ANSWER_SECONDS = 1.0  # the store is near; a longer wait is a failure
PAUSE_SECONDS = (0.2, 0.8)  # before the next attempt; with the answer's limit it stays below two seconds
CACHE_SECONDS = 1.0  # without the task: the store is read at most this often


def newest_snapshot() -> Snapshot | None:
    """Returns the newest snapshot, or None if there was none yet. From any thread; never waits in a web process."""
    return _image().snapshot


def health() -> SnapshotHealth:
    """Returns the health of `newest()`: how old it is, and what does not work."""
    return _image().health(_now_ms())


def leader() -> SchedulerStatus | None:
    """Returns the scheduler that takes the snapshots; None: none does, or it is not known."""
    return _image().leader


def servers() -> tuple[Server, ...]:
    """Returns the newest sample of every reporting server; a server that missed ten polls is left out."""
    return _image().servers


def known_server_ids() -> frozenset[str]:
    """Returns the ids of all servers that reported within the last days, also of those that are gone."""
    return _image().known


def gates() -> Mapping[str, Gate]:
    """Returns the gates of the reporting servers."""
    return _image().gates


def unreadable_servers() -> tuple[NodeProblem, ...]:
    """Returns servers whose node_exporter or Prometheus cannot be read now, and why; id "": Prometheus itself."""
    return _image().unread


def scanner_pulses() -> Mapping[ScannerKind, LastScannerRun] | None:
    """Returns the last runs of the scanners, from memory; None without a state cache task, or if it cannot read."""
    source = _source
    if source is None or source.image.health(_now_ms()).error:
        return None
    return source.image.pulses


def cached_state() -> CachedState | None:
    """Returns the whole cached state without waiting; None without a state cache task."""
    source = _source
    return source.image if source else None


def _image() -> CachedState:
    source = _source  # read once: another thread may stop the task meanwhile
    return source.image if source else _on_demand.look()


def forget_cached() -> None:
    """Drops the state that was read on demand, after the configuration has changed; the task keeps its own."""
    _on_demand.forget()


class StateCache:
    """Task of a web process that keeps the state current; calls `changed` on the event loop after every read."""

    def __init__(self, changed: Callable[[CachedState], None]) -> None:
        self._config = config.current()
        self.image = CachedState(self._config.collect_every, self._config.gate)
        self._changed = changed
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()

    async def start(self) -> None:
        """Starts, and waits for the first answer of the store or its failure, so that no page is served blank."""
        global _source  # noqa: PLW0603 -- one state cache a process, read from every thread
        self._task = asyncio.create_task(self._run(), name="mirror")
        await self._looked.wait()
        _source = self

    async def stop(self) -> None:
        global _source  # noqa: PLW0603 -- see start
        _source = None
        if self._task:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self) -> None:
        """Follows the store until cancelled; on any failure it records it, waits a moment and connects again."""
        while True:
            try:
                await self._follow()
            except Exception as failure:  # noqa: BLE001 -- this task must survive any failure
                self._failed(failure)
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))  # noqa: S311 -- jitter

    async def _follow(self) -> None:
        async with self._subscribed() as (client, subscription):
            while True:
                await self._look(client)
                with redis_errors.guarded(client):
                    await subscription.get_message(ignore_subscribe_messages=True, timeout=POLL_SECONDS)

    async def _look(self, client: Redis) -> None:
        """Reads the state, in one round trip to the state store."""
        question = client.pipeline(transaction=False)
        self.image.question(question)
        with redis_errors.guarded(client):
            async with asyncio.timeout(ANSWER_SECONDS):
                answers = await question.execute(raise_on_error=False)
            await asyncio.to_thread(self.image.answer, answers, _now_ms())
        self._tell()

    def _failed(self, failure: Exception) -> None:
        if not isinstance(failure, UnstallError | SnapshotOfOtherVersion):
            log.error("reading the newest snapshot failed", exc_info=failure)
        self.image.fail(failure, _now_ms())
        self._tell()

    def _tell(self) -> None:
        self._looked.set()
        self._changed(self.image)

    @asynccontextmanager
    async def _subscribed(self) -> AsyncIterator[tuple[Redis, Any]]:
        client = async_client.state_client(self._config)
        subscription = client.pubsub()
        try:
            with redis_errors.guarded(client):
                await subscription.subscribe(state_keys.SNAPSHOT_CHANNEL)
            yield client, subscription
        finally:
            await subscription.aclose()  # type: ignore[no-untyped-call]  # redis-py leaves it so
            await client.aclose()


class _OnDemand:
    """State for processes without the task: reads the store on demand, and keeps the answer for a moment."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._image: CachedState | None = None
        self._looked_at = 0.0

    def look(self) -> CachedState:
        with self._lock:
            if self._image is None:
                self._image = CachedState(config.current().collect_every, config.current().gate)
            if time.monotonic() - self._looked_at > CACHE_SECONDS or not self._looked_at:
                self._ask(self._image)
                self._looked_at = time.monotonic()
            return self._image

    def forget(self) -> None:
        with self._lock:
            self._image, self._looked_at = None, 0.0

    def _ask(self, image: CachedState) -> None:
        try:
            store = registry().state()
            question = store.pipeline(transaction=False)
            image.question(question)
            with redis_errors.guarded(store):
                answers = question.execute(raise_on_error=False)
                image.answer(answers, _now_ms())
        except (UnstallError, SnapshotOfOtherVersion) as failure:
            image.fail(failure, _now_ms())


def _now_ms() -> int:
    return shared_clock.now()


_source: StateCache | None = None
_on_demand = _OnDemand()
