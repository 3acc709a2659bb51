"""Checks that the state store is not the database of a queue, by the run ids of the servers.

Two URLs can name one server; two servers never have one run id. The ledger refuses to work in a database with queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import redis

from recovery.errors import NotApart, StoreError
from recovery.stores.redis import redis_errors
from recovery.stores.registry import ConnectionRegistry

KEPT_SECONDS = 30.0  # the answer changes only if an operator moves a store


@dataclass(frozen=True, slots=True)
class StoreIsolation:
    """Deployments in the same database as the state store (`same`), or only on its server (`beside`); `unknown`: those
    whose run id is not known.
    """

    same: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def trouble(self) -> str:
        """Sentence that says why the ledger must not be used; "" if it may."""
        if not self.same:
            return ""
        return (
            f"The state store is the same database as the queues of {', '.join(self.same)}: nothing is claimed there."
        )


def check_isolation(registry: ConnectionRegistry) -> StoreIsolation:
    """Compares the run ids of all deployments with that of the state store. Raises ConfigError and StoreError."""
    own = _own(registry.state())
    found: dict[str, list[str]] = {"same": [], "beside": [], "unknown": []}
    for deployment in registry.config.deployments:
        ids = _run_ids(registry, deployment.name)
        if not own or not ids:
            found["unknown"].append(deployment.name)
        elif own in ids:
            is_same = registry.config.state is not None and deployment.database == registry.config.state.database
            found["same" if is_same else "beside"].append(deployment.name)
    return StoreIsolation(**{name: tuple(names) for name, names in found.items()})


class StoreIsolationGuard:
    """Check whose result is kept for KEPT_SECONDS. Threads share it; at worst two of them check at once."""

    def __init__(self, registry: Callable[[], ConnectionRegistry], clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._found: tuple[float, StoreIsolation] | None = None

    def check(self) -> StoreIsolation:
        """Returns the neighbours, checked anew if too old. Raises NotApart, ConfigError, StoreError."""
        found = self._found
        if found is None or self._clock() - found[0] > KEPT_SECONDS:
            self._found = found = (self._clock(), check_isolation(self._registry()))
        if found[1].trouble:
            raise NotApart(found[1].trouble)
        return found[1]

    def forget(self) -> None:
        self._found = None


def _own(store: redis.Redis) -> str:
    """Returns the run id of the state store; "" if it refuses to tell it."""
    try:
        with redis_errors.guarded(store):
            return str(store.info("server").get("run_id", ""))
    except StoreError as error:
        if isinstance(error.__cause__, redis.ResponseError):
            return ""
        raise


def _run_ids(registry: ConnectionRegistry, name: str) -> set[str]:
    try:
        replies = registry.wire(name).each_node(("INFO", "server"))
    except StoreError:
        return set()
    lines = (line for reply in replies.values() if isinstance(reply, bytes) for line in reply.decode().splitlines())
    return {line.partition(":")[2] for line in lines if line.startswith("run_id:")}
