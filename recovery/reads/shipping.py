"""Which servers send their log lines, as far as that is known right now."""

from __future__ import annotations

from recovery.connections import faults, state
from recovery.connections.registry import registry
from recovery.domain.refs import text
from recovery.errors import ConfigError, StoreError
from recovery.reads.shared import windows

LIMIT = 1000  # servers


def servers() -> frozenset[str]:
    """Read once a second for all who ask; empty while nobody can tell."""
    try:
        return windows.get(("shipping",), _read)
    except (ConfigError, StoreError):
        return frozenset()


def is_known() -> bool:
    """Whether any server does."""
    return bool(servers())


def _read() -> frozenset[str]:
    store = registry().state()
    with faults.guarded(store):
        names: list[bytes] = store.zrange(state.SHIPPING, 0, LIMIT - 1, desc=True)  # type: ignore[assignment]  # sync
    return frozenset(map(text, names))
