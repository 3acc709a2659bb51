"""Checks whether the state store is durable: work whose idempotency key is lost may run a second time."""

from __future__ import annotations

from dataclasses import dataclass

import redis

from recovery.domain.identifiers import printable
from recovery.errors import StoreError
from recovery.stores.redis import redis_errors

_AGAIN = "work claimed or completed since then may run a second time"


@dataclass(frozen=True, slots=True)
class DurabilityRisk:
    """Risk that the state store loses claims and results, and the remedy."""

    says: str
    remedy: str


def find_risks(store: redis.Redis) -> tuple[DurabilityRisk, ...]:
    """Finds risks in the answer to INFO; a refused INFO is one too. Raises StoreError if the store is unavailable."""
    try:
        with redis_errors.guarded(store):
            told = store.info("persistence") | store.info("memory") | store.info("replication")
    except StoreError as error:
        if not isinstance(error.__cause__, redis.ResponseError):
            raise
        told = {}
    if "aof_enabled" not in told:
        says = "It is unknown whether the state store is persistent."
        return (DurabilityRisk(says, "Allow the user of UNSTALL_STATE_URL to call INFO."),)
    found = (_file(told), _eviction(told), _copy(told))
    return tuple(doubt for doubt in found if doubt)


def _file(told: dict[str, object]) -> DurabilityRisk | None:
    if told["aof_enabled"]:
        return None
    says = f"The state store has no append-only file: after a crash, {_AGAIN}."
    return DurabilityRisk(
        says, "Set appendonly yes in its configuration; the embedded Valkey of manage.py up has none."
    )


def _eviction(told: dict[str, object]) -> DurabilityRisk | None:
    """Reports an eviction policy. Idempotency keys have no TTL, so a policy for volatile keys does not evict them."""
    policy = str(told.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return None
    loses = f"any key, also idempotency keys: then {_AGAIN}" if policy.startswith("allkeys") else "arbitrary keys"
    says = f"maxmemory-policy of the state store is {printable(policy)}: when it is full it evicts {loses}."
    return DurabilityRisk(says, "Set maxmemory-policy noeviction.")


def _copy(told: dict[str, object]) -> DurabilityRisk | None:
    if not told.get("connected_slaves"):
        return None
    says = f"The state store has a replica: after a failover it may lack the last claims, and {_AGAIN}."
    return DurabilityRisk(
        says, "A failover is rare; work that must never run twice needs its own check at its side effect."
    )
