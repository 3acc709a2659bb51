"""Records where the store's user lacks permissions that changes need; each process that meets a refusal notes it.

A note covers one prefix of a deployment, as an ACL does, one job table, or the whole deployment. It stands until an
action succeeded there, or the permissions were found sufficient; meanwhile the scanners retry every RETRY, and no
recovery by them is predicted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from recovery import shared_clock
from recovery.domain.identifiers import QueueRef, encode_name, printable
from recovery.domain.json_fields import text, whole
from recovery.domain.time_units import MINUTE
from recovery.errors import ConfigError, StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry
from recovery.stores.state import size_limits, state_keys
from recovery.stores.state.shared_read import windows

RETRY = 10 * MINUTE  # the longest wait after permissions were granted; the ACL log gets few entries from us
_ALL = "*"  # the whole deployment: no prefix has this name


@dataclass(frozen=True, slots=True)
class RightsRefusal:
    """Missing permission. `why` is in the store's own words. `was_tried`: an action was refused, not only a probe."""

    why: str
    at: int
    was_tried: bool = False


RightsRefusals = Mapping[str, RightsRefusal]


def newest() -> RightsRefusals:
    """Returns all notes, read at most once a second; empty while the state store is unavailable."""
    try:
        return windows.get(("refusals",), lambda: fetch(registry().state()))
    except (ConfigError, StoreError):
        return {}


def fetch(store: redis.Redis) -> RightsRefusals:
    """Reads all notes. Raises StoreError."""
    with redis_errors.guarded(store):
        written = size_limits.hash_of(size_limits.ask_hash(store, state_keys.REFUSED))
    found = ((key.decode("utf-8", "surrogateescape"), _decoded(packed)) for key, packed in written.items())
    return {key: refusal for key, refusal in found if refusal}


def refusal_of_queue(queue: QueueRef, found: RightsRefusals) -> RightsRefusal | None:
    return found.get(_field(queue)) or found.get(_whole(queue.deployment))


def of_deployment(name: str, found: RightsRefusals) -> RightsRefusal | None:
    """Returns the note that covers all queues of a deployment."""
    return found.get(_whole(name))


def words(queue: QueueRef, refusal: RightsRefusal) -> str:
    return f"The user of {printable(queue.deployment)} may not change {queue.label}: {printable(refusal.why)}."


def note(store: redis.Redis, queue: QueueRef, why: str, *, was_tried: bool = False, is_all: bool = False) -> None:
    """Stores a note. `is_all`: every prefix of the deployment is refused. Raises StoreError."""
    refusal = json.dumps({"why": why, "at": shared_clock.now(), "was_tried": was_tried})
    with redis_errors.guarded(store):
        store.hset(state_keys.REFUSED, encode_name(_whole(queue.deployment) if is_all else _field(queue)), refusal)


def forget(store: redis.Redis, queue: QueueRef) -> None:
    """Removes a queue's notes: an action succeeded there, or its permissions suffice. Raises StoreError."""
    with redis_errors.guarded(store):
        store.hdel(state_keys.REFUSED, encode_name(_field(queue)), encode_name(_whole(queue.deployment)))


def _field(queue: QueueRef) -> str:
    return f"{queue.deployment}/{prefix_of(queue)}"


def _whole(deployment: str) -> str:
    return f"{deployment}/{_ALL}"


def prefix_of(queue: QueueRef) -> str:
    """Returns the prefix that one note covers. A job table has none: permissions are granted for each table."""
    return queue.base.rpartition(":")[0] or queue.base


def _decoded(packed: Any) -> RightsRefusal | None:
    """Decodes a note; None for what another version wrote."""
    try:
        written = json.loads(packed)
        return RightsRefusal(text(written["why"]), whole(written["at"]), written["was_tried"] is True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
