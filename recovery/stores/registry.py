"""Registry of every connection of this process, one wire a deployment, made when first asked for."""

from __future__ import annotations

import threading

import redis

from recovery import config as configuration
from recovery.config import Config, Database, Deployment, DeploymentMode
from recovery.stores.redis.client import SingleServerClient, StoreClient
from recovery.stores.redis.cluster import ClusterClient
from recovery.stores.redis.sentinel import SentinelClient
from recovery.stores.sql.sql_client import SqlClient
from recovery.stores.state import sync_client
from recovery.stores.state.size_limits import BoundedParser

_WIRES: dict[DeploymentMode, type[StoreClient]] = {
    DeploymentMode.SINGLE: SingleServerClient,
    DeploymentMode.SENTINEL: SentinelClient,
    DeploymentMode.CLUSTER: ClusterClient,
}
_lock = threading.Lock()
_current: ConnectionRegistry | None = None


class ConnectionRegistry:
    """Connections of one process. Thread-safe. Making one opens nothing."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._wires: dict[str, StoreClient] = {}
        self._state: redis.Redis | None = None
        self._lock = threading.Lock()

    def wire(self, deployment_name: str) -> StoreClient:
        """Returns the wire of a deployment. Raises DeploymentMissing for a name that is not configured."""
        with self._lock:
            wire = self._wires.get(deployment_name)
            if wire is None:
                wire = self._wires[deployment_name] = self._opened(self.config.deployment(deployment_name))
            return wire

    def state(self) -> redis.Redis:
        """Returns the client of the state store; raises ConfigError when none is configured."""
        with self._lock:
            if self._state is None:
                self._state = sync_client.open_client(sync_client.state_deployment(self.config), BoundedParser)
            return self._state

    def _opened(self, place: Deployment | Database) -> StoreClient:
        if isinstance(place, Deployment):
            return open_wire(place)
        return SqlClient(place, self.config.tables_of(place.name))

    def close(self) -> None:
        with self._lock:
            wires, self._wires = self._wires, {}
            state, self._state = self._state, None
        for wire in wires.values():
            wire.close()
        if state is not None:
            state.close()


def open_wire(deployment: Deployment) -> StoreClient:
    """Makes a wire of its own, as the deployment's mode asks; it connects when first used."""
    return _WIRES[deployment.mode](deployment)


def registry() -> ConnectionRegistry:
    """Returns the registry of this process, from its configuration; raises ConfigError."""
    global _current  # noqa: PLW0603 - one set of connections a process, and it has to live somewhere
    with _lock:
        if _current is None:
            _current = ConnectionRegistry(configuration.current())
        return _current


def reset() -> None:
    """Closes everything and forgets the configuration: after a fork, and between tests."""
    global _current
    with _lock:
        old, _current = _current, None
        configuration.current.cache_clear()
    if old is not None:
        old.close()
