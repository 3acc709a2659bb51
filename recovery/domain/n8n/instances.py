"""n8n's own registry of its processes, as n8n 2.20 and later keep it in the Redis of their queue.

Read in the sources of 2.20.0, 2.40.7 and 2.41.1 (`modules/instance-registry`); 2.19.5 has none. Each process writes one
key, `PREFIX:{instance:}ID`, JSON of the schema 1 with type, role, host, version, pool and its own times, when it starts
and every 30 s, each time with 60 s to live, and adds it to the set `PREFIX:{instance:}members`. A process that ends by
itself deletes both. One that is killed, that exits because its jobs outlasted its shutdown timeout, or that has lost
Redis for longer than it waits, deletes neither: its key ends, and the leader's main takes the member out of the set
within three minutes. ID is made anew by each process; a host is TYPE-HOSTNAME in a container, else TYPE-RANDOM.

What is remembered from reading to reading tells how a process ended. `seen_at` is the heartbeat by the clock of Redis
(computed from the time that the key has left), because n8n writes its own host's time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from recovery.domain.time_units import HOUR, SECOND, age

SCHEMA = 1  # of the registrations that are known here
HEARTBEAT = 30 * SECOND
EXPIRES = 60 * SECOND
SILENT_AFTER = HEARTBEAT + 5 * SECOND  # a heartbeat that is due and does not come
_TOLD = 5  # silent processes, and versions, that are named
GONE_KEPT, GONE_KEPT_FOR = 50, HOUR
_SLACK = SECOND
_WORKER = "worker"
NAMES = {"main": "main", _WORKER: "worker", "webhook": "webhook processor"}


class InstanceEnding(StrEnum):
    """Way in which a process ended, as far as its registration shows."""

    STOPPED = "stopped"  # it took itself out of the registry
    DIED = "died"  # its heartbeats ended, and it did not take itself out
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class N8nInstance:
    """A process of n8n. `role`: leader or follower of a main, else unset. Times in ms by the clock of Redis."""

    key: str
    type: str
    role: str
    host: str
    version: str
    registered_at: int
    seen_at: int  # its last heartbeat
    pool: str = ""  # of a worker

    @property
    def is_leader(self) -> bool:
        return self.type == "main" and self.role == "leader"

    def is_silent(self, now: int) -> bool:
        return now - self.seen_at > SILENT_AFTER

    def works_on(self, queue: str) -> bool:
        """Returns True if it takes jobs of this queue, given by the queue's own name: `jobs`, or `jobs-POOL`."""
        return self.type == _WORKER and queue == (f"jobs-{self.pool}" if self.pool else "jobs")


@dataclass(frozen=True, slots=True)
class EndedInstance:
    """A process that is no longer in the registry, as it was last seen. `at`: when a reading first missed it."""

    instance: N8nInstance
    at: int
    ending: InstanceEnding


@dataclass(frozen=True, slots=True)
class InstanceRegistry:
    """A reading of the registry. `expired`: ids of members whose key has ended. `unknown`: registrations that this
    version cannot read. `fault`: why it could not be read; then everything else says nothing.
    """

    instances: tuple[N8nInstance, ...] = ()
    expired: frozenset[str] = frozenset()
    unknown: int = 0
    fault: str = ""

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(sorted({one.version for one in self.instances}))


@dataclass(frozen=True, slots=True)
class InstanceHistory:
    """History of one registry over several readings: processes that are there, and those that ended within an hour.

    `checked_at` 0: it was never read. A reading that failed keeps what was known, with its `fault`.
    """

    here: Mapping[str, N8nInstance]
    gone: tuple[EndedInstance, ...] = ()
    checked_at: int = 0
    unknown: int = 0
    fault: str = ""

    @property
    def versions(self) -> tuple[str, ...]:
        return tuple(sorted({one.version for one in self.here.values()}))

    @property
    def main_version(self) -> str:
        """Version of the main processes, which handle lost executions; "" when there is no main, or they differ."""
        found = {one.version for one in self.here.values() if one.type == "main"}
        return found.pop() if len(found) == 1 else ""

    @property
    def instances(self) -> tuple[N8nInstance, ...]:
        """Processes that are there: mains first, the leader before all."""
        return tuple(sorted(self.here.values(), key=lambda one: (*_rank(one), one.host, one.key)))


EMPTY = InstanceHistory({})


def _rank(one: N8nInstance) -> tuple[int, bool]:
    kinds = list(NAMES)
    return (kinds.index(one.type) if one.type in kinds else len(kinds)), not one.is_leader


def concerns(history: InstanceHistory, now: int) -> Iterator[str]:
    """Yields a sentence for each problem among the processes: no heartbeat, no leader, different versions."""
    if history.fault:
        yield history.fault.rstrip(".") + "."
        return
    if history.unknown:
        yield f"{history.unknown:,} in n8n's registry are of a form that is not known here, and are not listed."
    here = history.instances
    silent, alive = [one for one in here if one.is_silent(now)], [one for one in here if not one.is_silent(now)]
    for one in silent[:_TOLD]:
        yield f"The {NAMES.get(one.type, 'process')} {one.host} has sent no heartbeat for {age(now - one.seen_at)}."
    if len(silent) > _TOLD:
        yield f"{len(silent) - _TOLD:,} more processes have sent no heartbeat."
    mains = [one for one in alive if one.type == "main"]
    if alive and not mains:
        yield "No main process is alive: nothing is triggered, and what waits is not resumed."
    elif mains and not any(one.is_leader for one in mains):
        yield "None of the main processes leads: nothing is triggered by time, and what waits is not resumed."
    if len(history.versions) > 1:
        yield f"Its processes run several versions of n8n: {_listed(history.versions)}."


def add_reading(history: InstanceHistory, found: InstanceRegistry, now: int) -> InstanceHistory:
    """Returns the history with one more reading of the registry."""
    if found.fault:
        return replace(history, fault=found.fault)
    here = {one.key: one for one in found.instances}
    missing = (one for key, one in history.here.items() if key not in here)
    new = (EndedInstance(one, now, _ending(one, found, history.checked_at, now)) for one in missing)
    kept = [one for one in history.gone if one.instance.key not in here and now - one.at <= GONE_KEPT_FOR]
    return InstanceHistory(here, (*kept, *new)[-GONE_KEPT:], now, found.unknown)


def _ending(one: N8nInstance, found: InstanceRegistry, checked_at: int, now: int) -> InstanceEnding:
    """Tells how a process ended: its key lives for a minute from its last heartbeat, so one that is gone sooner was
    deleted by the process itself.
    """
    if one.key in found.expired:
        return InstanceEnding.DIED
    if now - one.seen_at < EXPIRES - _SLACK:
        return InstanceEnding.STOPPED
    return InstanceEnding.DIED if one.is_silent(checked_at) else InstanceEnding.UNKNOWN


def summary(here: Collection[N8nInstance]) -> str:
    """Counts the processes in one clause: `n8n 2.41.1: 1 main, 2 workers, 1 webhook processor`."""
    counts = Counter(one.type for one in here)
    told = [f"{counts[kind]:,} {name}{'s' * (counts[kind] != 1)}" for kind, name in NAMES.items() if counts[kind]]
    other = sum(count for kind, count in counts.items() if kind not in NAMES)
    told += [f"{other:,} of an unknown type"] if other else []
    return f"n8n {_listed(sorted({one.version for one in here}))}: {', '.join(told)}"


def _listed(versions: Sequence[str]) -> str:
    more = f" and {len(versions) - _TOLD:,} more" if len(versions) > _TOLD else ""
    return f"{', '.join(versions[:_TOLD])}{more}"
