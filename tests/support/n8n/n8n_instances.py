"""n8n's registry of its processes, written as n8n 2.20 to 2.41 write it (its scripts, read in 2.41.1)."""

from __future__ import annotations

import json
from typing import Any

import redis

from tests.support.stuck.watching import now_ms

HEAD = "n8n:{instance:}"


def register(
    client: redis.Redis,
    key: str,
    kind: str = "worker",
    *,
    beat: float = 0,
    began: float = 600,
    head: str = HEAD,
    clock: float = 0,
    **facts: Any,
) -> None:
    """A process whose last heartbeat was `beat` seconds ago, and whose host's clock is that far ahead."""
    now = now_ms() + round(clock * 1000)
    role = "leader" if kind == "main" else "unset"
    told = {
        "schemaVersion": 1,
        "instanceKey": key,
        "hostId": f"{kind}-{key}",
        "instanceType": kind,
        "instanceRole": role,
        "version": "2.41.1",
        "registeredAt": now - round(began * 1000),
        "lastSeen": now - round(beat * 1000),
        **({"poolName": ""} if kind == "worker" else {}),
    }
    client.set(head + key, json.dumps(told | facts), px=60_000 - round(beat * 1000))
    client.sadd(f"{head}members", head + key)


def unregister(client: redis.Redis, key: str) -> None:
    client.delete(HEAD + key)
    client.srem(f"{HEAD}members", HEAD + key)
