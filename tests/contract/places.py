"""Where the ids of a queue stand, straight from the store: each belongs in exactly one place."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable

import redis

LISTS = ("wait", "paused", "active")
SETS = ("prioritized", "delayed", "waiting-children", "completed", "failed")
_MARKER = b"0:"  # BullMQ 3 and 4 keep marks among the ids of `wait`


def places(client: redis.Redis, base: str) -> dict[str, list[str]]:
    """By id, every place that holds it; one that holds it twice is named twice. Taken at one moment."""
    pipeline = client.pipeline(transaction=True)
    for name in LISTS:
        pipeline.lrange(f"{base}:{name}", 0, -1)
    for name in SETS:
        pipeline.zrange(f"{base}:{name}", 0, -1)
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, ids in zip((*LISTS, *SETS), pipeline.execute(), strict=True):
        for id in ids:
            if not id.startswith(_MARKER):
                found[id.decode()].append(name)
    return found


def tally(client: redis.Redis, base: str) -> Counter[str]:
    """How many are in each place."""
    return Counter(name for names in places(client, base).values() for name in names)


def assert_each_once(client: redis.Redis, base: str, jobs: Iterable[str]) -> None:
    """None of these is lost, and none is in two places, or twice in one."""
    found = places(client, base)
    assert {job: found.get(job, []) for job in jobs if len(found.get(job, [])) != 1} == {}
