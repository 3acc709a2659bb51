"""The libraries' own acts on keys that are there: by their own API, and their stalled check by its released script."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from tests.contract.golden import BASE
from tests.contract.worlds import MAX_STALLS, World
from tests.support.processes.driver import NODE_DIRECTORY
from tests.support.processes.fleet import Fleet, Queue
from tests.support.stores.stores import Store

_INCLUDE = re.compile(r'^[ \t]*--- @include "([^"]+)"[ \t]*$', re.MULTILINE)
_FOLDERS = {True: "lib/commands", False: "dist/cjs/commands"}
# In the order of the released script's KEYS, which its head lists.
_OF_BULL = ("stalled", "wait", "active", "failed", "stalled-check", "meta-paused", "paused")
_OF_BULLMQ = {
    3: ("stalled", "wait", "active", "failed", "stalled-check", "meta", "paused", "events"),
    4: ("stalled", "wait", "active", "failed", "stalled-check", "meta", "paused", "events"),
    5: ("stalled", "wait", "active", "stalled-check", "meta", "paused", "marker", "events", "repeat"),
    6: ("stalled", "wait", "active", "stalled-check", "meta", "paused", "marker", "events", "repeat"),
}
_INTERVAL = 30_000


def queue_of(world: World, libraries: Fleet, store: Store) -> Queue:
    prefix, name = BASE.split(":")
    return libraries[world.generation].queue(store, name, prefix=prefix)


def act(world: World, libraries: Fleet, store: Store, now: int) -> None:
    """The library does it, in its own way."""
    queue = queue_of(world, libraries, store)
    if world.act == "recover":
        check_stalled(world, store, now)
    elif world.act == "pause":
        queue.pause()
    elif world.act == "resume":
        queue.resume()
    else:
        for id in world.targets:
            state = () if world.is_bull or world.act != "retry" else (world.seen(id).state.value,)
            queue.call_job(id, world.act, *state)


def check_stalled(world: World, store: Store, now: int) -> None:
    names = _OF_BULL if world.is_bull else _OF_BULLMQ[world.major]
    keys = [f"{BASE}:{name}" for name in names]
    text = _script(world.generation, "moveStalledJobsToWait")
    store.do("EVAL", text, len(keys), *keys, MAX_STALLS, f"{BASE}:", now, _INTERVAL)


@cache
def _script(generation: str, name: str) -> str:
    """The text as the package brings it, with its includes put in, each once."""
    folder = NODE_DIRECTORY / "node_modules" / generation / _FOLDERS[not generation.startswith("bullmq")]
    (path,) = folder.glob(f"{name}-*.lua")
    return _whole(path, set())


def _whole(path: Path, known: set[Path]) -> str:
    def part(found: re.Match[str]) -> str:
        included = (path.parent / f"{found[1]}.lua").resolve()
        if included in known:
            return ""
        known.add(included)
        return _whole(included, known)

    return _INCLUDE.sub(part, path.read_text("utf-8"))
