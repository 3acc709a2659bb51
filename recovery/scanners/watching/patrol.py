"""One look at all active jobs of one deployment: what is asked of its Redis, in long batches, and nothing is written.

1. Every active list in windows, of many queues at once. 2. What is left of each lock. 3. What jobs that were not there
before say of themselves. 4. How their parents are. 5. A sure look at each suspect.
A job that is simply held costs one short command a look.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from recovery.backends.base import Wire
from recovery.backends.bullmq.parents import parents
from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.shared import actives
from recovery.backends.shared.actives import WINDOW, Suspect, Window
from recovery.domain.counts import Library
from recovery.domain.refs import QueueRef, text
from recovery.domain.surroundings import Surroundings
from recovery.scanners.watching.post import Active, Post

ACTIVE_LIMIT = 100_000  # ids looked at in one queue, oldest first: beyond that the newest wait for the oldest to end
TURN = 10_000  # ids in one go: about 10 ms of the server's time in many short commands, and 2 MB here
WINDOWS = 1_000  # lists in one go
SUSPECTS = 2_000  # sure looks in one go: 14 short commands each

T = TypeVar("T")


class Patrol:
    def __init__(self, wire: Wire, posts: Mapping[QueueRef, Post]) -> None:
        self._wire = wire
        self._posts = posts

    def find(self) -> None:
        """The active jobs of all posts and their locks; raises StoreError."""
        windows = [Window(ref) for ref in self._posts]
        while windows:
            turn, windows = self._turn(windows)
            windows += [window for window in self._read(turn) if window.start < ACTIVE_LIMIT]

    def inquire(self, now: int) -> None:
        """What new jobs say of themselves, and how their parents are; raises StoreError."""
        wanted = [(post.ref, id) for post in self._posts.values() for id in post.unknown_facts(now)]
        for part in _parts(wanted, TURN // 2):
            for (ref, id), facts in zip(part, actives.facts(self._wire, part), strict=True):
                self._posts[ref].facts[id] = facts
        for post in self._posts.values():
            keys = {facts.parent for facts in post.facts.values() if facts.parent}
            is_bullmq = post.sample.flavour.library is Library.BULLMQ
            post.parents = parents(self._wire, post.ref, keys) if keys and is_bullmq else {}

    def look(self, around: Mapping[QueueRef, Surroundings]) -> None:
        """A sure look at every suspect; raises StoreError."""
        for part in _parts(list(self._suspects(around)), SUSPECTS):
            for suspect, sight in zip(part, actives.sights(self._wire, part), strict=True):
                post = self._posts[suspect.window.ref]
                if sight is None:
                    post.found_moved.add(text(suspect.id))
                else:
                    post.take(sight, around[post.ref].now)

    def _suspects(self, around: Mapping[QueueRef, Surroundings]) -> Iterator[Suspect]:
        for post in self._posts.values():
            for one in post.found:
                if post.is_suspect(one, around[post.ref]):
                    yield Suspect(one.id, one.window)

    def _turn(self, windows: Sequence[Window]) -> tuple[list[Window], list[Window]]:
        """As many windows as hold TURN ids together, as far as the snapshot tells."""
        taken, room = 0, TURN
        while taken < min(len(windows), WINDOWS) and room > 0:
            room -= min(WINDOW, self._posts[windows[taken].ref].sample.counts.active or 0)
            taken += 1
        return list(windows[:taken]), list(windows[taken:])

    def _read(self, windows: Sequence[Window]) -> Iterable[Window]:
        """The windows that follow these."""
        found: list[tuple[QueueRef, Active]] = []
        following = []
        for window, ids in zip(windows, actives.ids(self._wire, windows), strict=True):
            post = self._posts[window.ref]
            if isinstance(ids, str):
                post.found_error = ids
                continue
            known = {one.id for one in post.found} if window.start else frozenset[bytes]()
            found += [(window.ref, Active(id, window)) for id in ids if id not in known and not _is_marker(post, id)]
            if len(ids) == WINDOW:
                following.append(Window(window.ref, window.start + WINDOW))
        ttls = actives.ttls(self._wire, [(ref, one.id) for ref, one in found])
        for (ref, one), ttl in zip(found, ttls, strict=True):
            one.ttl = ttl
            self._posts[ref].add(one)
        return following


def _is_marker(post: Post, id: bytes) -> bool:
    """An entry of BullMQ ≤ 4 that wakes workers up and is no job; newer versions may have leftovers of it."""
    return post.sample.flavour.library is not Library.BULL and LAYOUT.is_marker(id)


def _parts(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]
