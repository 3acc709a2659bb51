"""Runs the checks of `manage.py doctor`: everything that is configured is tried, and each finding has a remedy."""

from __future__ import annotations

from collections.abc import Iterator

from recovery import config as configuration
from recovery.errors import ConfigError
from recovery.management.doctor import (
    alerts,
    databases,
    deployments,
    idempotency,
    installation,
    n8n,
    nodes,
    state_store,
)
from recovery.management.doctor.findings import DoctorFinding, DoctorLevel, wrong
from recovery.stores.registry import ConnectionRegistry

__all__ = ["DoctorFinding", "DoctorLevel", "examine"]


def examine() -> Iterator[DoctorFinding]:
    """Yields findings one by one, so that a slow store does not delay what is known already. Raises nothing."""
    yield from installation.variables()
    yield from installation.data_directory()
    yield from installation.private_files()
    yield from installation.database()
    try:
        config = configuration.current()
    except ConfigError as error:
        yield from (wrong("configuration", f"{one.key} {one.problem}", one.remedy) for one in error.problems)
        return
    registry = ConnectionRegistry(config)
    try:
        yield from state_store.store(registry)
        yield from idempotency.idempotency(registry)
        yield from deployments.deployments(registry)
        yield from databases.databases(registry)
        yield from n8n.n8n(registry)
        yield from nodes.nodes(config)
        yield from alerts.alerts(config)
    finally:
        registry.close()
