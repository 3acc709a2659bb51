"""Whether the state store keeps what it is told: what the ledger forgets may be done a second time."""

from __future__ import annotations

from dataclasses import dataclass

import redis

from recovery.connections import faults
from recovery.domain.refs import shown
from recovery.errors import StoreError

_AGAIN = "work that was claimed or done since may be done a second time"


@dataclass(frozen=True, slots=True)
class Doubt:
    """One way in which it may lose claims and results, and what would be right."""

    says: str
    remedy: str


def doubts(store: redis.Redis) -> tuple[Doubt, ...]:
    """From INFO. Raises StoreError when the store is away; where it tells nothing, that is a doubt too."""
    try:
        with faults.guarded(store):
            told = store.info("persistence") | store.info("memory") | store.info("replication")
    except StoreError as error:
        if not isinstance(error.__cause__, redis.ResponseError):
            raise
        told = {}
    if "aof_enabled" not in told:
        says = "The state store does not tell whether it keeps what it is told."
        return (Doubt(says, "Let the user of UNSTALL_STATE_URL call INFO."),)
    found = (_file(told), _eviction(told), _copy(told))
    return tuple(doubt for doubt in found if doubt)


def _file(told: dict[str, object]) -> Doubt | None:
    if told["aof_enabled"]:
        return None
    says = f"The state store keeps no append-only file: when it crashes, {_AGAIN}."
    return Doubt(says, "Set appendonly yes in its configuration; the embedded Valkey of manage.py up has none.")


def _eviction(told: dict[str, object]) -> Doubt | None:
    """Keys of the ledger have no time to live, so a policy that is about those leaves them alone."""
    policy = str(told.get("maxmemory_policy", "noeviction"))
    if policy == "noeviction":
        return None
    loses = f"any key, the ledger too: then {_AGAIN}" if policy.startswith("allkeys") else "keys of its own choice"
    says = f"maxmemory-policy of the state store is {shown(policy)}: without room it throws away {loses}."
    return Doubt(says, "Set maxmemory-policy noeviction.")


def _copy(told: dict[str, object]) -> Doubt | None:
    if not told.get("connected_slaves"):
        return None
    says = f"The state store has a replica: when that takes over, it may lack the last claims, and {_AGAIN}."
    return Doubt(says, "A failover is rare; work that must never run twice needs its own check where it takes effect.")
