"""Reads which servers ship their log lines now."""

from __future__ import annotations

from recovery.domain.identifiers import decode_name
from recovery.errors import ConfigError, StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import registry
from recovery.stores.state import state_keys
from recovery.stores.state.shared_read import windows

LIMIT = 1000  # servers


def servers() -> frozenset[str]:
    """Returns the servers that ship log lines, read at most once a second; empty while that is unknown."""
    try:
        return windows.get(("shipping",), _read)
    except (ConfigError, StoreError):
        return frozenset()


def is_known() -> bool:
    """Tells whether any server ships log lines."""
    return bool(servers())


def _read() -> frozenset[str]:
    store = registry().state()
    with redis_errors.guarded(store):
        names: list[bytes] = store.zrange(state_keys.SHIPPING, 0, LIMIT - 1, desc=True)  # type: ignore[assignment]  # sync
    return frozenset(map(decode_name, names))
