"""Runs the checks of `manage.py doctor`: everything that is configured is tried, and each finding has a remedy."""

from __future__ import annotations

from collections.abc import Iterator

from recovery import config as configuration
from recovery.connections.registry import Registry
from recovery.errors import ConfigError
from recovery.management.checkup import alerts, databases, home, idempotency, n8n, nodes, queues, state
from recovery.management.checkup.findings import Finding, Level, wrong

__all__ = ["Finding", "Level", "examine"]


def examine() -> Iterator[Finding]:
    """Yields findings one by one, so that a slow store does not delay what is known already. Raises nothing."""
    yield from home.variables()
    yield from home.data_directory()
    yield from home.private_files()
    yield from home.database()
    try:
        config = configuration.current()
    except ConfigError as error:
        yield from (wrong("configuration", f"{one.key} {one.problem}", one.remedy) for one in error.problems)
        return
    registry = Registry(config)
    try:
        yield from state.store(registry)
        yield from idempotency.idempotency(registry)
        yield from queues.deployments(registry)
        yield from databases.databases(registry)
        yield from n8n.n8n(registry)
        yield from nodes.nodes(config)
        yield from alerts.alerts(config)
    finally:
        registry.close()
