"""Chooses the Redis in which a drill takes place, the state store or a named deployment, and builds its connection
options.
"""

from __future__ import annotations

from typing import Any

from recovery.config import Config, Deployment, DeploymentMode, ServerAddress
from recovery.errors import BadOrder, Unsupported
from recovery.stores.redis.client import StoreClient
from recovery.stores.state.sync_client import state_deployment


def deployment_of_drill(config: Config, name: str) -> Deployment:
    """Returns the deployment; `name` "": the state store. Raises ConfigError, DeploymentMissing, BadOrder and
    Unsupported.
    """
    if not name:
        return state_deployment(config)
    found = config.deployment(name)
    if not isinstance(found, Deployment):
        raise BadOrder(f"{name} is a database of job tables, not a Bull or BullMQ store.")
    if found.read_only:
        raise BadOrder(f"{name} is read-only by configuration, and a drill writes.")
    if found.mode is DeploymentMode.CLUSTER:
        raise Unsupported(f"{name} is a Cluster, and drills are for single servers and Sentinel.")
    return found


def connection_options(deployment: Deployment, wire: StoreClient) -> dict[str, Any]:
    """Returns the connection options for the worker programs. With Sentinel, the current master. Raises StoreError."""
    address = _master(wire) if deployment.mode is DeploymentMode.SENTINEL else deployment.nodes[0]
    tls = deployment.tls
    return {
        "host": address.host or None,
        "port": address.port or None,
        "path": address.path or None,
        "db": deployment.database,
        "username": deployment.login.username or None,
        "password": deployment.login.password or None,
        "tls": {"ca": tls.ca, "certificate": tls.certificate, "key": tls.key, "verify": tls.verify} if tls else None,
    }


def _master(wire: StoreClient) -> ServerAddress:
    host, _, port = wire.nodes()[0].rpartition(":")
    return ServerAddress(host.strip("[]"), int(port))
