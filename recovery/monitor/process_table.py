"""Follows the processes of this machine: which are workers, their descendants, and strays that outlived a worker.

A child that was started and lost its worker between two samples has no parent left. It is known by the process group or
the session that it inherited: that number is its founder's pid, and no process can get it while members live.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from recovery.domain.servers.samples import LeftoverProcess, ServerProcess
from recovery.monitor import procfs, sockets, worker_patterns
from recovery.monitor.procfs import Stat
from recovery.monitor.sockets import Sockets
from recovery.monitor.store_clock import StoreClock

PROCESSES = 64  # listed at most: those that use most CPU
STRAYS = 32  # listed at most: the oldest
SLICES = 12  # samples until every process was read again: it may have called exec, or its pid may be reused
SOCKETS_EVERY = 3  # samples: a worker keeps its connections
SAME = 2_000  # ms that two start times of one process may differ
REMEMBERED = 12  # samples that a dead worker is remembered for, so that its last children are known as its
_WHOLE = 100.0  # percent of a core


@dataclass(slots=True)
class TrackedProcess:
    """Process that we follow: a worker, or a descendant of one."""

    stat: Stat
    name: str = ""  # of its program
    command: str = ""  # as it is shown
    is_worker: bool = False
    owner: TrackedProcess | None = None  # the worker that it comes from, while that lives
    cpu: float | None = None
    sockets: tuple[str, ...] = ()
    place: bytes = b""  # its cgroup
    died: int | None = None  # the sample that missed it
    lost_at: float | None = None  # when it was first seen that it had outlived its worker
    parent: str = ""  # the command of that worker

    @property
    def is_detached(self) -> bool:
        """Returns True for a worker that was detached on purpose: it leads a session of its own."""
        return self.is_worker and self.stat.session == self.stat.pid

    @property
    def line(self) -> TrackedProcess | None:
        """Process that its children count for: itself if it is a worker or a stray, else its worker."""
        return self if self.is_worker or self.lost_at is not None else self.owner


@dataclass(slots=True)
class _Other:
    """Process that belongs to no worker so far."""

    started: float
    looks: int = 1


@dataclass(frozen=True, slots=True)
class ProcessFindings:
    processes: tuple[ServerProcess, ...] = ()
    strays: tuple[LeftoverProcess, ...] = ()
    left_out: int = 0


@dataclass(slots=True)
class ProcessTable:
    patterns: tuple[str, ...]
    times: StoreClock
    _members: dict[int, TrackedProcess] = field(default_factory=dict)
    _dead: list[TrackedProcess] = field(default_factory=list)
    _others: dict[int, _Other] = field(default_factory=dict)
    _looks: int = 0
    _at: float = 0.0

    def recall(self, strays: Iterable[LeftoverProcess]) -> None:
        """Takes over strays that the monitor before us knew and that still live: /proc does not show their origin."""
        for stray in strays:
            stat = procfs.stat(stray.pid)
            if stat and not stat.is_dead and abs(self.times.at(stat.started) - stray.started_at) < SAME:
                lost_at = stat.started + (stray.since - stray.started_at) / 1000
                member = TrackedProcess(stat, lost_at=lost_at, parent=stray.parent)
                self._name(member)
                self._take(member)

    def look(self, now: float) -> ProcessFindings:
        """Reads the processes once; returns workers and strays. `now`: seconds of the steady clock."""
        if not self.patterns:
            return ProcessFindings()
        self._looks += 1
        elapsed, self._at = now - self._at if self._looks > 1 else 0.0, now
        pids = set(procfs.pids()) - {os.getpid()}
        self._follow(elapsed)
        self._admit(self._met(pids))
        self._lose(now)
        self._others = {pid: other for pid, other in self._others.items() if pid in pids}
        self._dead = [member for member in self._dead if self._looks - (member.died or 0) < REMEMBERED]
        listed = self._listed()
        self._connect(listed)
        left_out = sum(member.is_worker for member in self._members.values()) - len(listed)
        return ProcessFindings(tuple(map(self._process, listed)), tuple(map(self._stray, self._strays())), left_out)

    def _follow(self, elapsed: float) -> None:
        """Reads the known processes again; one whose pid belongs to another process now has ended."""
        for pid, member in list(self._members.items()):
            stat = procfs.stat(pid)
            if stat is None or stat.is_dead or stat.started != member.stat.started:
                del self._members[pid]
                member.died = self._looks
                if member.line is member:
                    self._dead.append(member)
                continue
            used = max(0.0, stat.cpu - member.stat.cpu)
            member.cpu = _WHOLE * used / elapsed if elapsed > 0 else None
            member.stat = stat
            if self._is_turn(pid):
                self._name(member)

    def _met(self, pids: set[int]) -> dict[int, Stat]:
        """Returns processes whose command is to be read now: all new ones, and a part of the others."""
        met = {}
        for pid in pids - self._members.keys():
            other = self._others.get(pid)
            if other and other.looks > 1 and not self._is_turn(pid):
                continue
            stat = procfs.stat(pid)
            if stat is None or stat.is_dead:
                continue
            if other is None or other.started != stat.started:
                self._others[pid] = _Other(stat.started)
            else:
                other.looks += 1
            if not stat.is_kernel:
                met[pid] = stat
        return met

    def _admit(self, met: dict[int, Stat]) -> None:
        """Follows new workers, then processes that descend from one: parents before their children."""
        fresh = {pid: TrackedProcess(stat) for pid, stat in met.items()}
        for member in fresh.values():
            self._name(member)
            if member.is_worker:
                self._take(member)
        for member in sorted(fresh.values(), key=lambda one: (one.stat.started, one.stat.pid)):
            member.owner = self._owner(member.stat)
            if member.owner and not member.is_worker:
                self._take(member)

    def _take(self, member: TrackedProcess) -> None:
        member.place = procfs.cgroup(member.stat.pid)
        self._members[member.stat.pid] = member
        self._others.pop(member.stat.pid, None)

    def _owner(self, stat: Stat) -> TrackedProcess | None:
        parent = self._members.get(stat.parent)
        if parent and parent.stat.started <= stat.started:
            return parent.line
        return self._founder(stat) or self._late(stat)

    def _founder(self, stat: Stat) -> TrackedProcess | None:
        """Returns the known process, alive or dead, that founded its process group or session."""
        for number in (stat.group, stat.session):
            if number == stat.pid:
                continue
            for member in (self._members.get(number), *self._dead):
                if member and member.stat.pid == number and member.stat.started <= stat.started:
                    return member.line
        return None

    def _late(self, stat: Stat) -> TrackedProcess | None:
        """Returns a worker that died since the last sample and has the same session and cgroup, though it founded
        neither. The process was started under it, and the one that has adopted it meanwhile is not of that session.
        """
        for member in self._dead:
            is_of_it = member.stat.session == stat.session and member.stat.started <= stat.started
            if member.died == self._looks and is_of_it:
                parent = procfs.stat(stat.parent)
                if (not parent or parent.session != stat.session) and procfs.cgroup(stat.pid) == member.place:
                    return member
        return None

    def _lose(self, now: float) -> None:
        """Marks processes that have outlived their worker as strays, with their descendants."""
        while orphans := [one for one in self._members.values() if one.owner and _is_lost(one.owner)]:
            for orphan in orphans:
                owner, orphan.owner = orphan.owner, None
                if owner and not orphan.is_detached:
                    orphan.lost_at, orphan.parent = now, owner.parent or owner.command

    def _name(self, member: TrackedProcess) -> None:
        words = procfs.command(member.stat.pid)
        member.is_worker = worker_patterns.is_worker(words, self.patterns)
        member.name = worker_patterns.program(words) or member.stat.name
        member.command = worker_patterns.shown_command(words) if words else member.stat.name

    def _is_turn(self, pid: int) -> bool:
        return pid % SLICES == self._looks % SLICES

    def _connect(self, listed: Iterable[TrackedProcess]) -> None:
        look = Sockets()
        due = self._looks % SOCKETS_EVERY == 0
        for member in listed:
            if due or not member.sockets:
                member.sockets = look.of(member.stat.pid, member.sockets)

    def _listed(self) -> list[TrackedProcess]:
        found = [member for member in self._members.values() if member.is_worker]
        found.sort(key=lambda member: (-(member.cpu or 0.0), member.stat.started))
        return sorted(found[:PROCESSES], key=lambda member: (member.stat.started, member.stat.pid))

    def _strays(self) -> list[TrackedProcess]:
        found = [member for member in self._members.values() if member.lost_at is not None]
        return sorted(found, key=lambda member: (member.lost_at or 0.0, member.stat.started))[:STRAYS]

    def _process(self, member: TrackedProcess) -> ServerProcess:
        stat = member.stat
        started = self.times.at(stat.started)
        return ServerProcess(
            stat.pid, member.name, member.command, started, _rounded(member.cpu), stat.memory, member.sockets
        )

    def _stray(self, member: TrackedProcess) -> LeftoverProcess:
        stat = member.stat
        return LeftoverProcess(
            pid=stat.pid,
            name=member.name,
            command=member.command,
            started_at=self.times.at(stat.started),
            parent=member.parent,
            since=self.times.at(self._at if member.lost_at is None else member.lost_at),
            cpu=_rounded(member.cpu),
            memory=stat.memory,
            files=sockets.files(stat.pid),
        )


def _is_lost(owner: TrackedProcess) -> bool:
    return owner.died is not None or owner.lost_at is not None


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 1)
