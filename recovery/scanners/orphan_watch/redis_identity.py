"""Reads run id, uptime and role of the nodes of a Redis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recovery.domain.time_units import SECOND
from recovery.scanners.collect.server_info import parse_info_fields
from recovery.stores.redis.client import Command, StoreClient

_ASKED: tuple[Command, ...] = ((b"INFO", b"server"), (b"INFO", b"replication"))


@dataclass(frozen=True, slots=True)
class RedisIdentity:
    """Run ids, roles and uptime of all nodes together; "" and None where they are not known."""

    run_id: str = ""
    role: str = ""  # several, if they differ
    uptime: int | None = None  # ms, of the youngest


def read_redis_identity(wire: StoreClient) -> RedisIdentity:
    """Reads INFO from each node, one short round trip a node; raises StoreError."""
    told = [_told(wire.at(node, _ASKED)) for node in wire.nodes()]
    uptimes = [int(one["uptime_in_seconds"]) for one in told if one.get("uptime_in_seconds", "").isdigit()]
    return RedisIdentity(
        run_id=",".join(sorted(filter(None, (one.get("run_id", "") for one in told)))),
        role=", ".join(sorted({one["role"] for one in told if one.get("role")})),
        uptime=min(uptimes) * SECOND if uptimes else None,
    )


def _told(replies: list[Any]) -> Mapping[str, str]:
    """Returns the fields of INFO of one node, without sections that it refuses."""
    found: dict[str, str] = {}
    for reply in replies:
        found |= parse_info_fields(reply) if isinstance(reply, bytes | str) else {}
    return found
