"""Maps connections to servers by the monitors' newest reports, read from the state store once a second."""

from __future__ import annotations

from recovery import shared_clock
from recovery.domain.servers.addresses import AddressMap
from recovery.errors import ConfigError, StoreError
from recovery.servers import queries as servers_queries
from recovery.stores.registry import ConnectionRegistry, registry
from recovery.stores.state.shared_read import windows


def address_map(stores: ConnectionRegistry | None = None) -> AddressMap:
    """Returns the map; empty while the state store is unavailable: then connections have hosts, but no server."""
    try:
        store = (stores or registry()).state()
        found = windows.get(("servers", id(store)), lambda: servers_queries.fetch(store))
    except (ConfigError, StoreError):
        return AddressMap()
    return AddressMap.of(found, shared_clock.now())
