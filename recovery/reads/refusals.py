"""Where the store lets its user change nothing, or not all that it takes: noted by whoever found out.

A note covers one prefix of a deployment, as an ACL does, one job table, or all of it. It stands until something was
done there, or the rights were found to be enough; meanwhile the scanners try again every RETRY, and nothing is promised
in their name.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import redis

from recovery import shared_clock
from recovery.connections import faults, state, state_limits
from recovery.connections.registry import registry
from recovery.domain.ages import MINUTE
from recovery.domain.refs import QueueRef, raw, shown
from recovery.domain.stored import text, whole
from recovery.errors import ConfigError, StoreError
from recovery.reads.shared import windows

RETRY = 10 * MINUTE  # somebody who grants the rights waits no longer, and the ACL log has few entries of ours
_ALL = "*"  # of a deployment: no prefix is called so


@dataclass(frozen=True, slots=True)
class RightsRefusal:
    """`why`, in the store's own words. `was_tried`: something was to be done, and not only asked about."""

    why: str
    at: int
    was_tried: bool = False


Refusals = Mapping[str, RightsRefusal]


def newest() -> Refusals:
    """Asked once a second; empty too while the state store does not answer."""
    try:
        return windows.get(("refusals",), lambda: fetch(registry().state()))
    except (ConfigError, StoreError):
        return {}


def fetch(store: redis.Redis) -> Refusals:
    """Raises StoreError."""
    with faults.guarded(store):
        written = state_limits.hash_of(state_limits.ask_hash(store, state.REFUSED))
    found = ((key.decode("utf-8", "surrogateescape"), _decoded(packed)) for key, packed in written.items())
    return {key: refusal for key, refusal in found if refusal}


def of(queue: QueueRef, found: Refusals) -> RightsRefusal | None:
    return found.get(_field(queue)) or found.get(_whole(queue.deployment))


def of_deployment(name: str, found: Refusals) -> RightsRefusal | None:
    """Of all its queues."""
    return found.get(_whole(name))


def words(queue: QueueRef, refusal: RightsRefusal) -> str:
    return f"The user of {shown(queue.deployment)} may not change {queue.label}: {shown(refusal.why)}."


def note(store: redis.Redis, queue: QueueRef, why: str, *, was_tried: bool = False, is_all: bool = False) -> None:
    """`is_all`: every prefix of the deployment is refused. Raises StoreError."""
    refusal = json.dumps({"why": why, "at": shared_clock.now(), "was_tried": was_tried})
    with faults.guarded(store):
        store.hset(state.REFUSED, raw(_whole(queue.deployment) if is_all else _field(queue)), refusal)


def forget(store: redis.Redis, queue: QueueRef) -> None:
    """Something was done there, or can be. Raises StoreError."""
    with faults.guarded(store):
        store.hdel(state.REFUSED, raw(_field(queue)), raw(_whole(queue.deployment)))


def _field(queue: QueueRef) -> str:
    return f"{queue.deployment}/{prefix_of(queue)}"


def _whole(deployment: str) -> str:
    return f"{deployment}/{_ALL}"


def prefix_of(queue: QueueRef) -> str:
    """What one note covers. A job table has no prefix: it is granted by itself."""
    return queue.base.rpartition(":")[0] or queue.base


def _decoded(packed: Any) -> RightsRefusal | None:
    """None for what another version wrote."""
    try:
        written = json.loads(packed)
        return RightsRefusal(text(written["why"]), whole(written["at"]), written["was_tried"] is True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
