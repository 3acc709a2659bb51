"""Stores the active jobs of one queue in columns, oldest first: a running job costs about ninety bytes and no object.

It also plans which locks are read. A lock whose end is known has missed no renewal before a known moment, so until then
only its existence is checked: a hundred locks in one `EXISTS`. The remaining time of a lock (`PTTL`) is read when it is
not known, when the job is marked, and from the moment on when a renewal is due.

A library pushes a job that it takes to the newest end of the list. So the oldest jobs that stand in the order of the
last pass are still the same runs; what stands behind a new one was taken again, and is read again.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import compress, count
from typing import NamedTuple

from recovery.backends.redis_common.active_jobs import ENDLESS, NO_KEY, ActiveJobFacts

LOCKED = -3  # it has a lock; its TTL was not read
REFUSED = -4  # Redis refused the read
SAMPLED = 16  # locks of each queue read at every pass whatever is known: a queue with no more is always read in full
_UNKNOWN = 0
_NO_TIME = 1 << 62
_NO_WORKER = ""
_SAME_END = 1_000  # ms that the end of a lock may seem to move without a renewal
_STEP = 7  # of the sample, from pass to pass, so that it reaches every lock


class LockPlan(NamedTuple):
    """Locks of a queue to be read: the TTL of those at the indexes `asked`, and only the existence of the `rest`."""

    asked: Sequence[int]
    rest: Sequence[int]


class ActiveJobs:
    """Active jobs of one queue, kept between passes; `ttls` are of the current pass only."""

    __slots__ = (
        "_asked",
        "_counted",
        "_cursor",
        "_looks",
        "_read_at",
        "ends",
        "held",
        "ids",
        "longest",
        "parents",
        "renewal",
        "starts",
        "there",
        "ttls",
        "workers",
    )

    def __init__(self) -> None:
        self._looks = 0
        self.clear()

    def clear(self) -> None:
        self.ids: list[bytes] = []
        self.ttls = array("q")
        self.ends = array("q")  # when each lock ends, as far as it was read
        self.starts = array("q")
        self.workers: list[str] = []
        self.parents: list[str] = []
        self.there = bytearray()  # 2: its facts were never read
        self.held = bytearray()  # 1: it had a lock at the last complete pass
        self.longest = 0  # of the TTLs that this pass has read
        self.renewal = 0  # ms: the shortest way that the end of a lock has moved since it was read last
        self._asked: Sequence[int] = ()
        self._counted: Counter[str] | None = None
        self._cursor = 0  # up to here facts were read again in this round
        self._read_at: int | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def arrange(self, ids: list[bytes]) -> None:
        """Takes over the active list of this pass; an unchanged list costs nothing."""
        self._looks += 1
        self._asked, self.longest, self.renewal = (), 0, 0
        if ids != self.ids:
            self._rebuild(list(dict.fromkeys(ids)))
        self.ttls = array("q", [LOCKED]) * len(self.ids)

    def _rebuild(self, ids: list[bytes]) -> None:
        places = dict(zip(self.ids, count()))
        before = [places.get(id, -1) for id in ids]
        same = list(_same_run(before))
        self.held = bytearray(self.held[at] if at >= 0 else 0 for at in before)
        self.ends = array("q", [_UNKNOWN if at < 0 else self.ends[at] for at in same])
        self.starts = array("q", [_NO_TIME if at < 0 else self.starts[at] for at in same])
        self.workers = [_NO_WORKER if at < 0 else self.workers[at] for at in same]
        self.parents = ["" if at < 0 else self.parents[at] for at in same]
        self.there = bytearray(2 if at < 0 else self.there[at] for at in same)
        self._cursor = sum(0 <= at < self._cursor for at in same)
        self._counted = None
        # Keep the old bytes objects where they are equal: the new ones would fragment memory.
        self.ids = [id if at < 0 else self.ids[at] for id, at in zip(ids, before, strict=True)]

    # -- locks

    def forget_locks(self) -> None:
        """Forgets when locks end, after a restart of Redis."""
        self.ends = array("q", [_UNKNOWN]) * len(self.ids)

    def due(self, until: int) -> int:
        """Returns how many locks end before that moment, or have an unknown end."""
        return sum(map(until.__gt__, self.ends))

    def plan(self, until: int, marked: Collection[bytes], stride: int) -> LockPlan:
        """Plans which locks this pass reads. `until`: a lock that ends earlier may have missed a renewal; one in
        `stride` of those is read.
        """
        size = len(self.ids)
        if size <= SAMPLED:
            return LockPlan(range(size), ())
        step = size // SAMPLED
        chosen = bytearray(size)
        chosen[self._looks * _STEP % step :: step] = b"\1" * len(range(self._looks * _STEP % step, size, step))
        late = [at for at, end in enumerate(self.ends) if end < until]
        if stride > 1:
            unknown = [at for at in late if self.ends[at] == _UNKNOWN]
            late = [*unknown, *[at for at in late if self.ends[at] != _UNKNOWN][self._looks % stride :: stride]]
        for at in late:
            chosen[at] = 1
        for at in self.places(marked):
            chosen[at] = 1
        if chosen.count(1) == size:
            return LockPlan(range(size), ())
        flipped = chosen.translate(_FLIP)
        return LockPlan(list(compress(range(size), chosen)), list(compress(range(size), flipped)))

    def places(self, ids: Collection[bytes]) -> list[int]:
        return [at for at, id in enumerate(self.ids) if id in ids] if ids else []

    def learn(self, places: Sequence[int], ttls: Sequence[int | None], now: int) -> None:
        """Takes the TTLs of these locks; None: Redis refused the read."""
        for at, ttl in zip(places, ttls, strict=True):
            self.ttls[at] = REFUSED if ttl is None else ttl
            end = now + ttl if ttl is not None and ttl >= 0 else _UNKNOWN
            moved = end - self.ends[at]
            if end and _SAME_END < moved < end and not 0 < self.renewal <= moved:
                self.renewal = moved
            self.ends[at] = end
        self.longest = max(self.longest, max((ttl for ttl in ttls if ttl is not None), default=0))
        self._asked = places if not self._asked else [*self._asked, *places]

    def told(self, below: float) -> Iterator[int]:
        """Yields indexes of jobs whose TTL was read in this pass and is below a value, or that have no lock."""
        ttls = self.ttls
        return (at for at in self._asked if ttls[at] < below)

    def has(self, at: int) -> bool:
        """Returns True if the job has a lock."""
        return self.ttls[at] not in (NO_KEY, REFUSED)

    def hold(self) -> None:
        """Ends a pass: notes which jobs had a lock."""
        self.held = bytearray(b"\1") * len(self.ids)
        for at in self.told(0):
            self.held[at] = self.ttls[at] == ENDLESS

    # -- what jobs say of themselves

    def unread(self) -> list[int]:
        """Returns indexes of jobs whose facts were never read."""
        return [at for at, known in enumerate(self.there) if known == 2] if 2 in self.there else []

    def stale(self, now: int, life: int, most: int) -> list[int]:
        """Returns indexes of jobs to be read again, so that each is within `life` ms, at most `most` of them."""
        size = len(self.ids)
        passed = 0 if self._read_at is None else max(0, now - self._read_at)
        share = min(most, -(-size * passed // life) if passed < life else size)
        self._read_at = now
        first, self._cursor = self._cursor, self._cursor + share
        if self._cursor < size:
            return list(range(first, self._cursor))
        self._cursor = min(first, self._cursor - size) if size else 0
        return [*range(first, size), *range(self._cursor)]

    def state(self, at: int, facts: ActiveJobFacts) -> None:
        self.starts[at] = _NO_TIME if facts.processed_at is None else facts.processed_at
        self.workers[at], self.parents[at] = sys.intern(facts.worker), facts.parent
        self.there[at] = facts.is_there
        self._counted = None

    def start_of(self, at: int) -> int | None:
        start = self.starts[at]
        return None if start == _NO_TIME else start

    def by_worker(self) -> Counter[str]:
        """Returns how many jobs name each worker; counted again when that has changed."""
        if self._counted is None:
            self._counted = Counter(self.workers)
        return self._counted

    def of_workers(self, names: Collection[str]) -> Iterable[int]:
        return (at for at, worker in enumerate(self.workers) if worker in names) if names else ()

    def of_parents(self, keys: Collection[str]) -> Iterable[int]:
        return (at for at, parent in enumerate(self.parents) if parent in keys) if keys else ()

    def started_before(self, moment: int) -> Iterable[int]:
        """Returns indexes of jobs started before that moment; jobs without a start are left out."""
        if not self.starts or min(self.starts) >= moment:
            return ()
        return (at for at, start in enumerate(self.starts) if start < moment)

    def gone(self) -> Iterable[int]:
        """Returns indexes of jobs whose data is missing: only the id is in the list."""
        return (at for at, known in enumerate(self.there) if not known) if 0 in self.there else ()

    def older(self, moment: int) -> int:
        """Returns how many jobs may have been started before that moment; those without a start count."""
        if not self.starts or moment <= min(self.starts) <= max(self.starts) < _NO_TIME:
            return 0
        if max(self.starts) < moment:
            return len(self.starts)
        return sum(start < moment or start == _NO_TIME for start in self.starts)


_FLIP = bytes([1, 0, *range(2, 256)])


def _same_run(before: Iterable[int]) -> Iterator[int]:
    """Yields the index at the last pass for jobs that have been active since, else -1."""
    last, is_over = -1, False
    for at in before:
        is_over = is_over or at < 0
        if is_over or at < last:
            yield -1
        else:
            last = at
            yield at
