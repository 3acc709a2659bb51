"""Whether the state store is another place than the queues, whatever names both were given.

Two URLs can name one server; a server's run id cannot. The ledger does not work where queues are kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import redis

from recovery.connections import faults
from recovery.connections.registry import Registry
from recovery.errors import NotApart, StoreError

KEPT_SECONDS = 30.0  # the answer changes only when somebody moves a store


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Deployments whose queues are in the very database of the state store, and those that share its server alone;
    `unknown`: those that did not tell.
    """

    same: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def trouble(self) -> str:
        """Why the ledger does not work; "" when it may."""
        if not self.same:
            return ""
        return (
            f"The state store is the same database as the queues of {', '.join(self.same)}: nothing is claimed there."
        )


def neighbours(registry: Registry) -> Neighbours:
    """Asks all of them. Raises ConfigError, and StoreError of the state store."""
    own = _own(registry.state())
    found: dict[str, list[str]] = {"same": [], "beside": [], "unknown": []}
    for deployment in registry.config.deployments:
        ids = _run_ids(registry, deployment.name)
        if not own or not ids:
            found["unknown"].append(deployment.name)
        elif own in ids:
            is_same = registry.config.state is not None and deployment.database == registry.config.state.database
            found["same" if is_same else "beside"].append(deployment.name)
    return Neighbours(**{name: tuple(names) for name, names in found.items()})


class Guard:
    """What was found is believed for a while. Used from threads; asked twice at worst."""

    def __init__(self, registry: Callable[[], Registry], clock: Callable[[], float] = time.monotonic) -> None:
        self._registry = registry
        self._clock = clock
        self._found: tuple[float, Neighbours] | None = None

    def check(self) -> Neighbours:
        """Raises NotApart, ConfigError, StoreError."""
        found = self._found
        if found is None or self._clock() - found[0] > KEPT_SECONDS:
            self._found = found = (self._clock(), neighbours(self._registry()))
        if found[1].trouble:
            raise NotApart(found[1].trouble)
        return found[1]

    def forget(self) -> None:
        self._found = None


def _own(store: redis.Redis) -> str:
    """ "" when it does not tell."""
    try:
        with faults.guarded(store):
            return str(store.info("server").get("run_id", ""))
    except StoreError as error:
        if isinstance(error.__cause__, redis.ResponseError):
            return ""
        raise


def _run_ids(registry: Registry, name: str) -> set[str]:
    try:
        replies = registry.wire(name).each_node(("INFO", "server"))
    except StoreError:
        return set()
    lines = (line for reply in replies.values() if isinstance(reply, bytes) for line in reply.decode().splitlines())
    return {line.partition(":")[2] for line in lines if line.startswith("run_id:")}
