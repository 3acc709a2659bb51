"""Keys of a queue that hold far more than any library writes there, as whoever may write to its keys can plant them."""

from __future__ import annotations

from collections.abc import Callable

import redis

MIB = 1024 * 1024
_SEED = "unstall-test:long"
_SECONDS = 120.0  # to copy half a gigabyte on a busy machine


def patient(client: redis.Redis) -> redis.Redis:
    """A client of the same server that waits longer."""
    place = client.connection_pool.connection_kwargs
    return redis.Redis(host=place["host"], port=place["port"], socket_timeout=_SECONDS)


def plant(client: redis.Redis, size: int, command: str, *args: str | bytes) -> None:
    """Runs a command with a text of this size in place of each argument `…`: the server makes it by itself."""
    with patient(client) as slow:
        slow.setrange(_SEED, size - 1, b"x")
        long = [f"ARGV[{at}]" if arg != "…" else f"redis.call('GET', '{_SEED}')" for at, arg in enumerate(args, 1)]
        slow.eval(f"return redis.call('{command}', {', '.join(long)}) and 1", 0, *args)
        slow.delete(_SEED)


Planting = Callable[[redis.Redis, str, int], None]


def id_in_active(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "LPUSH", f"{base}:active", "…")


def id_between_others(client: redis.Redis, base: str, size: int) -> None:
    """Neither the newest nor the oldest, so that no head shows it."""
    client.lpush(f"{base}:active", "1")
    plant(client, size, "LPUSH", f"{base}:active", "…")
    client.lpush(f"{base}:active", "2")


def id_in_failed(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "ZADD", f"{base}:failed", "1795000156536", "…")


def id_in_delayed(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "ZADD", f"{base}:delayed", "1795000156536", "…")


def paused(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "HSET", f"{base}:meta", "paused", "…")


def version(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "HSET", f"{base}:meta", "version", "…")


def counter(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "SET", f"{base}:id", "…")


def time_of_head(client: redis.Redis, base: str, size: int) -> None:
    """Of the job that waits longest, and of one that runs."""
    for id, place in (("1", "wait"), ("2", "active")):
        client.hset(f"{base}:{id}", mapping={"name": "mail", "data": "{}"})
        plant(client, size, "HSET", f"{base}:{id}", "timestamp", "…")
        client.lpush(f"{base}:{place}", id)


def metrics(client: redis.Redis, base: str, size: int) -> None:
    plant(client, size, "HSET", f"{base}:metrics:completed", "count", "…")
    plant(client, size, "LPUSH", f"{base}:metrics:completed:data", "…")


SNAPSHOT: tuple[Planting, ...] = (id_in_active, id_in_delayed, paused, counter, time_of_head)
ALL: tuple[Planting, ...] = (*SNAPSHOT, id_between_others, id_in_failed, version, metrics)


def many_entries(client: redis.Redis, base: str, count: int, step: int = 50_000) -> None:
    """So many ids in each list and set."""
    for name, command in (("active", "LPUSH"), ("wait", "LPUSH"), ("failed", "ZADD"), ("completed", "ZADD")):
        score = "" if command == "LPUSH" else "i, "
        script = f"for i = ARGV[1], ARGV[2] do redis.call('{command}', KEYS[1], {score}i) end"
        for first in range(1, count + 1, step):
            client.eval(script, 1, f"{base}:{name}", first, min(count, first + step - 1))
