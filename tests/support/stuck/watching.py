"""Queues written by hand, and a configuration that watches the stores of a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import redis

from recovery import shared_clock
from recovery.config import Config, load
from tests.support.stores.stores import Store

NOW = 1_760_000_040_000  # a fixed moment, 40 seconds into its minute


def config_of(directory: Path, state: Store, deployments: Mapping[str, Store | str], **settings: object) -> Config:
    """`settings` belong to every deployment."""
    lines = [f'[state]\nurl = "{state.url}"']
    for name, store in deployments.items():
        url = store if isinstance(store, str) else store.url
        lines.append(f'[[deployments]]\nname = "{name}"\nurl = "{url}"')
        lines += [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    (directory / "unstall.toml").write_text("\n".join(lines))
    return load({}, directory=directory)


def bull(client: redis.Redis, base: str) -> None:
    """The queue becomes one of Bull 4: without what BullMQ alone writes, with what Bull 4 alone writes."""
    client.delete(f"{base}:meta", f"{base}:events")
    client.set(f"{base}:id", 1)
    client.hset(f"{base}:metrics:completed", "count", 1)


def bullmq(client: redis.Redis, base: str, *, version: str = "5.81.5") -> None:
    """An empty BullMQ queue, as its producer leaves it."""
    client.hset(f"{base}:meta", mapping={"version": f"bullmq:{version}", "opts.maxLenEvents": "10000"})


def add(client: redis.Redis, base: str, *ids: str, timestamp: int = NOW, **fields: str | int) -> None:
    """Waiting jobs, the first one next."""
    for id in ids:
        client.incr(f"{base}:id")
        client.hset(f"{base}:{id}", mapping={"name": "mail", "data": "{}", "timestamp": timestamp, "delay": 0} | fields)
        client.lpush(f"{base}:wait", id)


def finish(client: redis.Redis, base: str, *times: int, outcome: str = "completed") -> None:
    """Finished jobs that are kept."""
    for at in times:
        id = client.incr(f"{base}:id")
        client.hset(f"{base}:{id}", mapping={"name": "mail", "data": "{}", "finishedOn": at})
        client.zadd(f"{base}:{outcome}", {str(id): at})


def now_ms() -> int:
    return shared_clock.now()
