"""Maps connections to servers by the monitors' newest reports, read from the state store once a second."""

from __future__ import annotations

from recovery import shared_clock
from recovery.connections.registry import Registry, registry
from recovery.domain.whereabouts import Whereabouts
from recovery.errors import ConfigError, StoreError
from recovery.reads import servers
from recovery.reads.shared import windows


def known(stores: Registry | None = None) -> Whereabouts:
    """Returns the map; empty while the state store is unavailable: then connections have hosts, but no server."""
    try:
        store = (stores or registry()).state()
        found = windows.get(("servers", id(store)), lambda: servers.fetch(store))
    except (ConfigError, StoreError):
        return Whereabouts()
    return Whereabouts.of(found, shared_clock.now())
