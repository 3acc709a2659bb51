"""Finds out which workers of n8n have left, and how they ended, from n8n's registry of its processes.

All workers of n8n connect under one name, and no key says which connection is whose. Two rules tell:

1. A process registers some seconds before its worker connects. Where one connection and one process alone fit each
   other so, they are the same.
2. A process that has had a heartbeat since a connection closed is not the one that left. Where one process is left over
   for the one connection that no other explains, it is that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from recovery.backends.bull import n8n_instances
from recovery.config import Config
from recovery.domain.identifiers import QueueRef
from recovery.domain.n8n import instances as history_rules
from recovery.domain.n8n import versions
from recovery.domain.n8n.detection import is_n8n
from recovery.domain.n8n.instances import InstanceEnding, InstanceHistory, N8nInstance
from recovery.domain.n8n.versions import Version
from recovery.domain.queues.types import Worker
from recovery.domain.stuck.context import WorkerChange
from recovery.domain.time_units import MINUTE, SECOND
from recovery.errors import StoreError
from recovery.scanners.orphan_watch.queue_state import QueueState
from recovery.stores.redis.client import StoreClient

EXPLAINED_WITHIN = 10 * MINUTE  # a departure that is unexplained by then stays as it is
_READ_EVERY = 15 * SECOND  # while no departure is unexplained: two reads show what ended in between
_REFUSED_EVERY = MINUTE  # each refusal is an entry in the store's ACL log
_STARTS_WITHIN = 30 * SECOND  # from a registration to its worker's connection
_CLOCKS = 2 * SECOND
_NOTICED = 10 * SECOND  # two passes: a departure is noticed so much later at most
_ENDS_WITHIN = 40 * SECOND  # a stop takes its registration out up to a shutdown's length before its connection ends


class N8nInstanceWatch:
    """Registries of n8n on one deployment, one for each prefix that an n8n writes under."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._histories: dict[str, InstanceHistory] = {}
        self._asked_at: dict[str, int] = {}

    def explain(
        self, wire: StoreClient, posts: Iterable[QueueState], workers: Sequence[Worker], taken_at: int, now: int
    ) -> None:
        """Adds instance and ending to the departures of n8n's queues. A registry that cannot be read adds nothing."""
        for post in posts:
            if not is_n8n(post.ref, post.sample.flavour):
                continue
            left = post.memory.left
            history = self._history(wire, self._config.n8n_prefix(post.ref), left, now)
            here = [taken_at - one.age * SECOND for one in workers if one.queue == post.ref]
            queue = post.ref.base.rpartition(":")[2]
            post.memory = replace(post.memory, left=explain_departures(left, history, queue, here, now))

    def version(self, ref: QueueRef) -> Version | None:
        """Returns the version of the main processes of this queue's n8n; None if it is not n8n's, or not known."""
        known = self._histories.get(self._config.n8n_prefix(ref))
        return versions.parse(known.main_version) if known and not known.fault else None

    def _history(self, wire: StoreClient, prefix: str, left: Sequence[WorkerChange], now: int) -> InstanceHistory:
        known = self._histories.get(prefix, history_rules.EMPTY)
        is_pending = any(_is_open(change, now) for change in left)
        every = _REFUSED_EVERY if known.fault else 0 if is_pending else _READ_EVERY
        if 0 <= now - self._asked_at.get(prefix, 0) < every:
            return known
        self._asked_at[prefix] = now
        try:
            found = n8n_instances.read(wire, prefix, now)
        except StoreError:
            return known
        self._histories[prefix] = history_rules.add_reading(known, found, now)
        return self._histories[prefix]


@dataclass(frozen=True, slots=True)
class _Candidate:
    instance: N8nInstance
    ending: InstanceEnding
    gone_at: int | None


def explain_departures(
    left: Sequence[WorkerChange], history: InstanceHistory, queue: str, here: Iterable[int], now: int
) -> tuple[WorkerChange, ...]:
    """Returns the departures of one queue with what the registry says about them. `here`: since when each connected
    worker has been connected.
    """
    if history.fault or not (history.here or history.gone):
        return tuple(left)
    ours = [one for one in _candidates(history, now) if one.instance.works_on(queue)]
    opened = [*here, *(change.since for change in left if change.since is not None)]
    told = [_unless_alive(change, ours, now) for change in left]
    pending = [at for at, change in enumerate(told) if _is_open(change, now)]
    for at in pending:
        change = told[at]
        named = {one.instance for one in told if one.instance} - {change.instance}
        fitting = [one for one in ours if _may_be(one, change) and change.instance in ("", one.instance.host)]
        free = [one for one in fitting if one.instance.host not in named]
        is_last = bool(change.instance) or sum(not told[other].instance for other in pending) == 1
        found = _by_start(change, free, opened) or (free[0] if len(free) == 1 and is_last else None)
        if found:
            told[at] = replace(change, instance=found.instance.host, ending=found.ending.value)
    return tuple(told)


def _unless_alive(change: WorkerChange, ours: Sequence[_Candidate], now: int) -> WorkerChange:
    """Removes the instance from a departure if that process has had a heartbeat since."""
    is_alive = any(one.instance.host == change.instance and not _may_be(one, change) for one in ours)
    return replace(change, instance="") if is_alive and _is_open(change, now) else change


def _candidates(history: InstanceHistory, now: int) -> Iterable[_Candidate]:
    for one in history.here.values():
        yield _Candidate(one, InstanceEnding.DIED if one.is_silent(now) else InstanceEnding.UNKNOWN, None)
    for gone in history.gone:
        yield _Candidate(gone.instance, gone.ending, gone.at)


def _is_open(change: WorkerChange, now: int) -> bool:
    return not change.ending and now - change.at <= EXPLAINED_WITHIN


def _may_be(one: _Candidate, change: WorkerChange) -> bool:
    """Returns True if the process was registered before the departure and had no heartbeat after it."""
    instance = one.instance
    if instance.registered_at > change.at or instance.seen_at > change.at:
        return False
    if one.ending is InstanceEnding.STOPPED and one.gone_at is not None:
        return change.at - _ENDS_WITHIN <= one.gone_at <= change.at + _NOTICED
    return True


def _by_start(change: WorkerChange, candidates: Sequence[_Candidate], opened: Sequence[int]) -> _Candidate | None:
    """Returns the process that started right before this connection, if no other connection was made then."""
    if change.since is None:
        return None
    fitting = [one for one in candidates if _fits(one.instance, change.since)]
    if len(fitting) != 1:
        return None
    return fitting[0] if sum(_fits(fitting[0].instance, since) for since in opened) == 1 else None


def _fits(instance: N8nInstance, since: int) -> bool:
    return -_CLOCKS <= since - instance.registered_at <= _STARTS_WITHIN
