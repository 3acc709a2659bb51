"""Reads n8n's own registry of its processes, and keeps the result in the state store between scheduler and pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, replace
from typing import Any

import redis

from recovery.backends.bull import n8n_instances
from recovery.config import N8nInstallation
from recovery.domain.n8n import versions
from recovery.domain.n8n.instances import (
    EMPTY,
    EndedInstance,
    InstanceEnding,
    InstanceHistory,
    N8nInstance,
    add_reading,
)
from recovery.domain.n8n.versions import Version
from recovery.errors import ConfigError, StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry, registry
from recovery.stores.state import documents, size_limits, state_keys
from recovery.stores.state.shared_read import windows

_PURPOSE = "n8n instances"
_SHAPE = 1
_KEEP_S = 3_600  # what ended is kept for an hour
_BROKEN = (ValueError, TypeError, IndexError, KeyError, AttributeError)


def read_all(here: ConnectionRegistry, known: Mapping[str, InstanceHistory], now: int) -> dict[str, InstanceHistory]:
    """Returns the history of each installation with one more reading; a Redis that does not answer is a fault in it."""
    return {one.name: look(here, one, known.get(one.name, EMPTY), now) for one in here.config.n8n}


def look(here: ConnectionRegistry, n8n: N8nInstallation, known: InstanceHistory, now: int) -> InstanceHistory:
    try:
        found = n8n_instances.read(here.wire(n8n.queue.deployment), n8n.redis_prefix, now)
    except (StoreError, ConfigError) as error:
        return replace(known, fault=f"n8n's registry cannot be read: {error}")
    return add_reading(known, found, now)


def publish(store: redis.Redis, histories: Mapping[str, InstanceHistory]) -> None:
    """Stores the histories as the newest; raises StoreError."""
    packed = encode(histories)
    with redis_errors.guarded(store):
        store.set(state_keys.N8N_INSTANCES, packed, ex=_KEEP_S)


def fetch(store: redis.Redis) -> Mapping[str, InstanceHistory]:
    """Returns the newest histories by the name of the installation; none if this version cannot read them. Raises
    StoreError.
    """
    with redis_errors.guarded(store):
        packed = size_limits.string_of(size_limits.ask_string(store, state_keys.N8N_INSTANCES))
    return decode(packed) if packed is not None else {}


def newest() -> Mapping[str, InstanceHistory]:
    """Returns the newest histories, read from the state store at most once a second; none if it does not answer."""
    try:
        return windows.get(("n8n instances",), lambda: fetch(registry().state()))
    except (ConfigError, StoreError):
        return {}


def version(name: str) -> Version | None:
    """Returns the version of this installation's mains; None if it is not known, or they differ."""
    return version_of(newest().get(name))


def version_of(history: InstanceHistory | None) -> Version | None:
    return None if history is None or history.fault else versions.parse(history.main_version)


def encode(histories: Mapping[str, InstanceHistory]) -> bytes:
    written = {
        name: [
            [astuple(one) for one in history.here.values()],
            [astuple(one) for one in history.gone],
            history.checked_at,
            history.unknown,
            history.fault,
        ]
        for name, history in histories.items()
    }
    return documents.pack(_PURPOSE, [_SHAPE, written])


def decode(packed: bytes) -> Mapping[str, InstanceHistory]:
    """Inverts `encode`; returns nothing for a document that this version did not write."""
    try:
        shape, written = documents.unpack(_PURPOSE, packed)
        return {name: _history(row) for name, row in written.items()} if shape == _SHAPE else {}
    except _BROKEN:
        return {}


def _history(row: list[Any]) -> InstanceHistory:
    here, gone, checked_at, unknown, fault = row
    instances = [N8nInstance(*one) for one in here]
    left = tuple(EndedInstance(N8nInstance(*one), at, InstanceEnding(ending)) for one, at, ending in gone)
    return InstanceHistory({one.key: one for one in instances}, left, checked_at, unknown, fault)
