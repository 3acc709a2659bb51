"""Keeps the memory of the orphan watch in the state store, and writes only changes. Without the store the passes go on,
report it, and remember nothing across a restart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from recovery.domain.identifiers import QueueRef
from recovery.errors import ConfigError, StoreError
from recovery.reads.stuck import observations
from recovery.reads.stuck.observations import DeploymentObservation, JobObservation, QueueObservation
from recovery.scanners.orphan_watch.queue_state import QueueState
from recovery.stores.registry import ConnectionRegistry

_SEEN_STEP = 10_000  # ms: the stalled check is seen at every pass, which need not be written each time
_LENGTH_STEP = 500  # ms: by so little the longest lock may grow unwritten


class WatchMemory:
    """Memory of one deployment. `writes` off: it only reads, and works without a state store where there is none."""

    def __init__(self, registry: ConnectionRegistry, deployment: str, *, writes: bool) -> None:
        self._registry = registry
        self._deployment = deployment
        self._writes = writes
        self._place: DeploymentObservation | None = None
        self._written: dict[str, QueueObservation] = {}
        self._is_news = False  # the deployment itself has something to be written
        self.restarted_at: int | None = None
        self.fault = ""

    def begin(self, run_id: str, now: int) -> None:
        """Begins a pass and detects a restart of Redis. `run_id`: as INFO has it, "" if it is not known."""
        self.fault = ""
        place = self._known()
        has_restarted = bool(place.run_id and run_id and place.run_id != run_id)
        self.restarted_at = now if has_restarted else place.restarted_at
        if self._place is not None and run_id and run_id != place.run_id:
            self._place = replace(place, run_id=run_id, restarted_at=self.restarted_at)
            self._is_news = True

    def memory(self, ref: QueueRef) -> QueueObservation:
        return self._known().queues.get(ref.base, QueueObservation())

    def marks(self, ref: QueueRef) -> dict[str, JobObservation]:
        try:
            return observations.marks(self._registry.state(), ref)
        except (ConfigError, StoreError) as error:
            self._fail(error)
            return {}

    def save(self, posts: Iterable[QueueState], gone: Iterable[str]) -> None:
        if not self._writes or self._place is None:
            return
        posts, gone = list(posts), list(gone)
        try:
            for post in posts:
                self._save_marks(post)
            self._save_memories(posts, gone)
        except StoreError as error:
            self._fail(error)

    def _save_marks(self, post: QueueState) -> None:
        """Writes changed marks; what could not be written is tried again at the next pass."""
        news = {id: mark for id, mark in post.marks.items() if post.written.get(id) != mark}
        gone = [id for id in post.written if id not in post.marks]
        if news or gone:
            observations.save(self._registry.state(), post.ref, news, gone)
            post.written = dict(post.marks)

    def _save_memories(self, posts: Iterable[QueueState], gone: list[str]) -> None:
        rough = {post.ref.base: _rough(post.memory) for post in posts}
        news = {
            post.ref.base: post.memory for post in posts if self._written.get(post.ref.base) != rough[post.ref.base]
        }
        if self._place is not None and (news or gone or self._is_news):
            observations.remember(self._registry.state(), self._deployment, replace(self._place, queues=news), gone)
            self._is_news = False
            self._written |= {base: rough[base] for base in news}
            for base in gone:
                self._written.pop(base, None)

    def _known(self) -> DeploymentObservation:
        if self._place is None:
            try:
                self._place = observations.place(self._registry.state(), self._deployment)
            except (ConfigError, StoreError) as error:
                self._fail(error)
        return self._place or DeploymentObservation()

    def _fail(self, error: ConfigError | StoreError) -> None:
        if self._writes or isinstance(error, StoreError):
            self.fault = f"The state store cannot be used, so nothing is kept across a restart: {error}"


def _rough(memory: QueueObservation) -> QueueObservation:
    """Returns a coarse copy of the memory: only changes of it are worth a write."""
    seen_at = memory.watchdog_seen_at
    return replace(
        memory,
        watchdog_seen_at=None if seen_at is None else seen_at // _SEEN_STEP,
        lock_seen_at=memory.lock_seen_at // _SEEN_STEP,
        lock_length=memory.lock_length // _LENGTH_STEP,
        interval=memory.interval // _LENGTH_STEP,
    )
