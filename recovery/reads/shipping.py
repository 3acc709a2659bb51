"""Reads which servers ship their log lines now."""

from __future__ import annotations

from recovery.connections import faults, state
from recovery.connections.registry import registry
from recovery.domain.refs import text
from recovery.errors import ConfigError, StoreError
from recovery.reads.shared import windows

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
    with faults.guarded(store):
        names: list[bytes] = store.zrange(state.SHIPPING, 0, LIMIT - 1, desc=True)  # type: ignore[assignment]  # sync
    return frozenset(map(text, names))
