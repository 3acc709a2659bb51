"""Tells where a library keeps its jobs: one place a state."""

from __future__ import annotations

from dataclasses import dataclass

from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef
from recovery.domain.jobs import JobState


@dataclass(frozen=True, slots=True)
class StatePlace:
    """The list or sorted set that holds all jobs of one state."""

    state: JobState
    suffix: bytes
    is_list: bool = False
    newest_first: bool = False  # the order a person expects

    def key(self, keys: Keys) -> bytes:
        return keys.named(self.suffix)


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of all states of one library, in the order of a job's life; `membership` says why that matters."""

    places: tuple[StatePlace, ...]
    has_markers: bool = False  # `0:…` entries of BullMQ among the ids of `wait` and `active`
    has_families: bool = False
    repeat_has_zone: bool = False  # an `every:` entry of `repeat` has an (empty) time zone in it

    def place(self, state: JobState) -> StatePlace | None:
        return next((place for place in self.places if place.state == state), None)

    def is_marker(self, id: bytes) -> bool:
        """Returns True for an entry that wakes workers up and is no job."""
        return self.has_markers and id.startswith(b"0:")


@dataclass(frozen=True, slots=True)
class QueueContext:
    """Queue of one library, with what every read here needs to know of it."""

    ref: QueueRef
    keys: Keys
    layout: Layout
