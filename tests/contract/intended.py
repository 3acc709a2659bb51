"""Where our acts differ from the library's on purpose: what it left, with each of these put in.

Every function below is one such difference; its docstring says what the library does instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from recovery.backends.bull import recover
from tests.contract import worlds
from tests.contract.golden import BASE, Keyspace
from tests.contract.worlds import World

Difference = Callable[[World, Keyspace, Sequence[str], int], None]


def of(world: World, theirs: Keyspace, order: Sequence[str], now: int) -> Keyspace:
    """`order`: the stalled jobs, as the library's check went through them."""
    for difference in _DIFFERENCES.get((world.generation, world.act), ()):
        difference(world, theirs, order, now)
    return theirs


def _failures_are_finished_and_kept_as_wished(world: World, theirs: Keyspace, order: Sequence[str], now: int) -> None:
    """Bull before 4.12.6 writes no finishedOn when a job stalls too often, and does not heed removeOnFail."""
    failed = _scores(world.keys, "failed")
    for id in _failing(world, order):
        keep, age = recover.parse_retention({"removeOnFail": world.facts[id]["kept"]})
        failed[id] = now
        theirs[f"{BASE}:{id}"]["v"]["finishedOn"] = str(now)
        gone = [id] if keep == 0 else []
        gone += [one for one, score in failed.items() if age is not None and score <= now - age]
        newest = sorted((one for one in failed if one not in gone), key=lambda one: (failed[one], one))
        gone += newest[: len(newest) - keep] if keep else []
        for one in gone:
            failed.pop(one)
            theirs.pop(f"{BASE}:{one}", None)
            theirs.pop(f"{BASE}:{one}:logs", None)
    _put_scores(theirs, "failed", failed)


def _failures_leave_no_priority_behind(world: World, theirs: Keyspace, order: Sequence[str], now: int) -> None:
    """The library's check leaves the entry of a job that died before it was locked: it skews where others are put."""
    left = _scores(theirs, "priority")
    for id in _failing(world, order):
        left.pop(id, None)
    _put_scores(theirs, "priority", left)


def _a_paused_queue_stays_paused(world: World, theirs: Keyspace, order: Sequence[str], now: int) -> None:
    """Bull before 4.10.4 retries into `wait`; Bull 3 promotes into `wait` as long as `paused` is empty."""
    (id,) = world.targets
    if world.is_paused and id in _ids(theirs, "wait"):
        _take(theirs, "wait", id)
        at_tail = world.act == "retry" and world.facts[id]["lifo"]
        ids = theirs.setdefault(f"{BASE}:paused", {"t": "list", "v": []})["v"]
        ids.insert(len(ids) if at_tail else 0, id)


def _a_retried_job_keeps_its_priority(world: World, theirs: Keyspace, order: Sequence[str], now: int) -> None:
    """Up to BullMQ 6.3.4 the library pushes it behind all others, outside of their order."""
    (id,) = world.targets
    priority = world.facts[id]["priority"]
    if not priority:
        return
    name = next(name for name in ("wait", "paused") if id in _ids(theirs, name))
    _take(theirs, name, id)
    if not world.is_bull and world.major >= 4:
        _prioritize(world, theirs, id, priority)
        return
    counts = _scores(theirs, "priority") | {id: priority}
    _put_scores(theirs, "priority", counts)
    ids = theirs.setdefault(f"{BASE}:{name}", {"t": "list", "v": []})["v"]
    place = len(ids) - (sum(score <= priority for score in counts.values()) - 1)
    ids.insert(place if -len(ids) <= place < len(ids) else len(ids), id)


def _prioritize(world: World, theirs: Keyspace, id: str, priority: int) -> None:
    """Behind its equals, in the set of its own; in BullMQ 4 an entry in an empty `wait` wakes a worker."""
    number = int(theirs.get(f"{BASE}:pc", {"v": "0"})["v"]) + 1
    theirs[f"{BASE}:pc"] = {"t": "string", "v": str(number)}
    _put_scores(theirs, "prioritized", _scores(theirs, "prioritized") | {id: priority * 2**32 + number})
    if world.major == 4 and not world.is_paused and f"{BASE}:wait" not in theirs:
        theirs[f"{BASE}:wait"] = {"t": "list", "v": ["0:0"]}


def _failing(world: World, order: Sequence[str]) -> list[str]:
    return [id for id in order if id in world.targets and world.facts[id]["stalls"] >= worlds.MAX_STALLS]


def _ids(keys: Keyspace, name: str) -> list[str]:
    return list(keys.get(f"{BASE}:{name}", {"v": []})["v"])


def _take(keys: Keyspace, name: str, id: str) -> None:
    """Out of a list; an empty one is no key."""
    left = keys[f"{BASE}:{name}"]["v"]
    left.remove(id)
    if not left:
        del keys[f"{BASE}:{name}"]


def _scores(keys: Keyspace, name: str) -> dict[str, float]:
    flat: list[Any] = keys.get(f"{BASE}:{name}", {"v": []})["v"]
    return {id: float(score) for id, score in zip(flat[::2], flat[1::2], strict=True)}


def _put_scores(keys: Keyspace, name: str, scores: dict[str, float]) -> None:
    keys.pop(f"{BASE}:{name}", None)
    if scores:
        flat = [part for id, score in scores.items() for part in (id, f"{score:.17g}")]
        keys[f"{BASE}:{name}"] = {"t": "zset", "v": flat}


_DIFFERENCES: dict[tuple[str, str], tuple[Difference, ...]] = {
    ("bull3", "recover"): (_failures_are_finished_and_kept_as_wished, _failures_leave_no_priority_behind),
    ("bull3", "retry"): (_a_paused_queue_stays_paused, _a_retried_job_keeps_its_priority),
    ("bull3", "promote"): (_a_paused_queue_stays_paused,),
    ("bull4", "recover"): (_failures_leave_no_priority_behind,),
    ("bull4", "retry"): (_a_retried_job_keeps_its_priority,),
    ("bullmq3", "recover"): (_failures_leave_no_priority_behind,),
    ("bullmq3", "retry"): (_a_retried_job_keeps_its_priority,),
    ("bullmq4", "retry"): (_a_retried_job_keeps_its_priority,),
    ("bullmq5", "retry"): (_a_retried_job_keeps_its_priority,),
}
