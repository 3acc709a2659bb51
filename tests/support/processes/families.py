"""Parents and children of BullMQ written by hand, as a FlowProducer leaves them."""

from __future__ import annotations

import json

import redis

from tests.support.stuck.watching import now_ms


def job(client: redis.Redis, base: str, id: str, place: str = "failed", **fields: str) -> str:
    """A job in a sorted set of its queue; its full key."""
    own = {"name": "mail", "data": "{}", "opts": "{}", "timestamp": str(now_ms()), "delay": "0", "priority": "0"}
    client.setnx(f"{base}:id", 1)
    client.hset(f"{base}:{id}", mapping=own | fields)
    client.zadd(f"{base}:{place}", {id: now_ms()})
    return f"{base}:{id}"


def child_of(client: redis.Redis, parent: str, base: str, id: str) -> str:
    """A delayed job that the parent (its full key) waits for; its full key."""
    queue, _, number = parent.rpartition(":")
    written = json.dumps({"id": number, "queueKey": queue})
    key = job(client, base, id, "delayed", parentKey=parent, parent=written)
    client.sadd(f"{parent}:dependencies", key)
    return key
