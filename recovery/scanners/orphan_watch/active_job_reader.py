"""Reads all active jobs of one Redis deployment in long batches; it writes nothing.

1. Reads every active list in windows, of many queues at once. 2. Reads the locks. 3. Reads the facts of new jobs.
4. Reads the state of their parents. 5. Reads each suspect once more, with all that a verdict needs.
A job that is simply running costs a hundredth of a command a pass, and a short one now and then (`active_jobs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import compress, islice
from operator import not_
from typing import TypeVar

from recovery.backends.base import CommandClient
from recovery.backends.bullmq.parents import parents
from recovery.backends.bullmq.versions import LAYOUT
from recovery.backends.redis_common import active_jobs
from recovery.backends.redis_common.active_jobs import WINDOW, ActiveSuspect, ActiveWindow
from recovery.backends.redis_common.reply_errors import oversized
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.queues.types import QueueLibrary
from recovery.domain.stuck.context import VerdictContext
from recovery.scanners.orphan_watch.queue_state import FACTS_LIFE, QueueState

ACTIVE_LIMIT = 100_000  # ids read in one queue, oldest first: beyond that the newest wait for the oldest to end
TURN = 10_000  # ids in one batch: about 10 ms of the server's time in many short commands, and 2 MB here
LIST_BYTES = 8 * 1024 * 1024  # of the ids of one queue: 80 of each, for as many as are read
WINDOWS = 1_000  # lists in one batch
GROUP = 100  # locks in one EXISTS: about 20 µs of the server's time
DUE = 50_000  # locks that are due, read in one pass: with the usual lock of 30 s enough for 150,000 running jobs
STALE = 20_000  # jobs whose start is read again in one pass: all of 240,000 within a minute
SKIPPED_MS = 60_000  # for a list that holds an id that is too long to be read
LATE_LOOKS = 1_000  # jobs that are only late, read in one pass: as many as a page lists; all are counted
SUSPECTS = 2_000  # suspects read in one batch: 14 short commands each

_TOO_LONG = f"the ids of its active jobs take more than {LIST_BYTES // 2**20} MiB, so they are not read"

T = TypeVar("T")


class ActiveJobReader:
    def __init__(self, wire: CommandClient, posts: Mapping[QueueRef, QueueState]) -> None:
        self._wire = wire
        self._posts = posts
        self._stride = 1

    def find(self, now: int) -> None:
        """Reads the active lists of all queues and their locks; raises StoreError."""
        due = sum(post.jobs.due(now + round(post.late_below)) for post in self._posts.values())
        self._stride = max(1, -(-due // DUE))
        waiting = list(self._posts.values())
        while waiting:
            turn, waiting = self._turn(waiting)
            self._list(turn, now)
            self._ask_locks([post for post in turn if not post.found_error], now)

    def inquire(self, now: int) -> None:
        """Reads the facts of new jobs (start, worker, parent) and the state of their parents; raises StoreError."""
        posts = [post for post in self._posts.values() if not post.found_error]
        active = sum(len(post.jobs) for post in posts)
        self._read_facts([(post, at) for post in posts for at in post.jobs.unread()], now)
        again = []
        for post in posts:
            share = -(-STALE * len(post.jobs) // active) if active else 0
            life = 0 if post.has_just_lost_a_worker(now) else FACTS_LIFE
            again += [(post, at) for at in post.jobs.stale(now, life, share if life else len(post.jobs))]
        self._read_facts(list(self._restarted(again)), now)
        posts = [post for post in posts if not post.found_error]
        for post in posts:
            keys = {parent for parent in post.jobs.parents if parent}
            is_bullmq = post.sample.flavour.library is QueueLibrary.BULLMQ
            post.parents = parents(self._wire, post.ref, keys) if keys and is_bullmq else {}

    def _read_facts(self, wanted: Sequence[tuple[QueueState, int]], now: int) -> None:
        for part in _parts(wanted, TURN // 2):
            asked = [(post.ref, post.jobs.ids[at]) for post, at in part]
            for (post, at), facts in zip(part, active_jobs.facts(self._wire, asked), strict=True):
                post.jobs.state(at, facts)
                if facts.error:
                    _skip(post, facts.error, now)

    def _restarted(self, wanted: Sequence[tuple[QueueState, int]]) -> Iterator[tuple[QueueState, int]]:
        """Yields jobs that were started again since they were read, or whose data has appeared or is gone."""
        for part in _parts(wanted, TURN):
            asked = [(post.ref, post.jobs.ids[at]) for post, at in part]
            for (post, at), (start, is_there) in zip(part, active_jobs.starts(self._wire, asked), strict=True):
                if start != post.jobs.start_of(at) or is_there != bool(post.jobs.there[at]):
                    yield post, at

    def look(self, around: Mapping[QueueRef, VerdictContext]) -> None:
        """Reads each suspect once more, with all that a verdict needs; raises StoreError."""
        for post in self._posts.values():
            if not post.found_error:
                post.set_apart(around[post.ref])
        for part in _parts(list(self._suspects(around)), SUSPECTS):
            for suspect, sight in zip(part, active_jobs.read_consistently(self._wire, part), strict=True):
                post = self._posts[suspect.window.ref]
                if sight is None:
                    post.found_moved.add(decode_name(suspect.id))
                elif sight.error:
                    _skip(post, sight.error, around[post.ref].now)
                else:
                    post.take(sight, around[post.ref].now)

    def _suspects(self, around: Mapping[QueueRef, VerdictContext]) -> Iterator[ActiveSuspect]:
        late = LATE_LOOKS
        for post in self._posts.values():
            for one in post.found:
                near = around[post.ref]
                is_suspect = post.is_suspect(one, near)
                if not is_suspect and late and post.is_newly_late(one, near):
                    late -= 1
                    is_suspect = True
                if is_suspect:
                    yield ActiveSuspect(one.id, one.window)

    def _turn(self, posts: Sequence[QueueState]) -> tuple[list[QueueState], list[QueueState]]:
        """Splits off as many queues as hold TURN jobs together, by the counts of the snapshot."""
        taken, room = 0, TURN
        while taken < min(len(posts), WINDOWS) and room > 0:
            room -= max(1, posts[taken].sample.counts.active or 0)
            taken += 1
        return list(posts[:taken]), list(posts[taken:])

    def _list(self, posts: Sequence[QueueState], now: int) -> None:
        """Reads every list to its end: first the windows that the snapshot's counts ask for, then one by one."""
        found: dict[QueueRef, list[bytes]] = {post.ref: [] for post in posts}
        sizes = dict.fromkeys(found, 0)
        asked = [post for post in posts if not _is_skipped(post, now)]
        windows = [ActiveWindow(post.ref, start) for post in asked for start in _window_starts(post)]
        while windows:
            following, last = [], {window.ref: window.start for window in windows}
            for whole in _parts(windows, TURN // WINDOW if len(posts) == 1 else WINDOWS):
                part = [window for window in whole if not self._posts[window.ref].found_error]
                for window, ids in zip(part, active_jobs.ids(self._wire, part), strict=True):
                    post = self._posts[window.ref]
                    if isinstance(ids, Exception):
                        post.found_error = str(ids)
                        if oversized(ids):
                            _skip(post, str(ids), now)
                        continue
                    sizes[window.ref] += sum(map(len, ids))
                    if sizes[window.ref] > LIST_BYTES:
                        _skip(post, _TOO_LONG, now)
                        found[window.ref].clear()
                        continue
                    found[window.ref] += ids
                    after = window.start + WINDOW
                    if len(ids) == WINDOW and window.start == last[window.ref] and after < ACTIVE_LIMIT:
                        following.append(ActiveWindow(window.ref, after))
            windows = [window for window in following if not self._posts[window.ref].found_error]
        for post in posts:
            if not post.found_error:
                post.jobs.arrange(_without_markers(post, found.pop(post.ref)))

    def _ask_locks(self, posts: Sequence[QueueState], now: int) -> None:
        """Reads the TTL of locks that may have missed a renewal, and of the others only if they exist."""
        groups: list[tuple[QueueState, Sequence[int]]] = []
        asked: list[tuple[QueueState, Sequence[int]]] = []
        for post in posts:
            plan = post.plan_locks(now, self._stride)
            asked.append((post, plan.asked))
            groups += [(post, part) for part in _parts(plan.rest, GROUP)]
        ids = [(post.ref, [post.jobs.ids[at] for at in part]) for post, part in groups]
        asked += compress(groups, map(not_, active_jobs.all_locked(self._wire, ids)))
        ttls = iter(
            active_jobs.ttls(self._wire, [(post.ref, post.jobs.ids[at]) for post, part in asked for at in part])
        )
        for post, part in asked:
            post.jobs.learn(part, list(islice(ttls, len(part))), now)


def _skip(post: QueueState, why: str, now: int) -> None:
    post.found_error = post.skipped_for = why
    post.skipped_until = now + SKIPPED_MS


def _is_skipped(post: QueueState, now: int) -> bool:
    """Returns True if the list was too long to be read a moment ago: the server copies all of it for each read."""
    is_skipped = now < post.skipped_until <= now + SKIPPED_MS
    if is_skipped:
        post.found_error = post.skipped_for
    return is_skipped


def _window_starts(post: QueueState) -> range:
    return range(0, min(ACTIVE_LIMIT, (post.sample.counts.active or 0) + 1), WINDOW)


def _without_markers(post: QueueState, ids: list[bytes]) -> list[bytes]:
    return ids if ids == post.jobs.ids else [id for id in ids if not _is_marker(post, id)]


def _is_marker(post: QueueState, id: bytes) -> bool:
    """Returns True for an entry of BullMQ ≤ 4 that wakes workers up and is no job; it may be left in newer versions."""
    return post.sample.flavour.library is not QueueLibrary.BULL and LAYOUT.is_marker(id)


def _parts(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]
