"""Determines why a job lost its worker: a hint, with the evidence it rests on.

Several causes look the same for a while, and some for ever. So a cause is named only when the evidence leaves no other:
until then it is unknown, and the sentence says what was seen. Two facts decide most of it. A worker that reconnects
within half a lock's length renews its locks: a job that lost its lock nevertheless had another process. And the workers
of a deployment are connected soon after the old ones left; after a crash none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.domain.identifiers import printable
from recovery.domain.jobs import JobRow
from recovery.domain.n8n.instances import InstanceEnding
from recovery.domain.servers.addresses import host_of
from recovery.domain.stuck.context import VerdictContext, WorkerChange
from recovery.domain.stuck.holders import NEWS, HolderPresence, departures, holder_presence, renewed_at
from recovery.domain.stuck.types import LossCause
from recovery.domain.time_units import age

LOCK_ASSUMED = 30_000  # ms; what both libraries use, where no lock has been seen
SETTLED_AFTER = 2  # lock lengths without a worker: a deployment has started the replacements by then
RECONNECTS_FROM = 1 / 3  # of a lock's length: a worker away for less loses no lock; half, less the time between checks
MANY = 2  # workers: one departure and one arrival may be a supervisor's restart, and a crash takes one
BUSY_CPU = 80.0
_SLACK = 10_000  # ms: two looks
_CLOCKS = 500  # ms that the clock of a worker's host, which says when a job began, may be ahead of ours

Found = tuple[LossCause, str]


def find_cause(row: JobRow, around: VerdictContext, since: int) -> Found:
    """Returns the cause and its evidence, which an unknown one may have too. `since`: first seen without its holder."""
    gone = _gone(row, around, since)
    return (
        _restarted(row, around, since)
        or (_coincided(row, around, gone) if gone else None)
        or (_departed(row, around, gone) if gone else None)
        or _missing(row, around)
        or _unresponsive(row, around, since)
        or (LossCause.UNKNOWN, "")
    )


def _restarted(row: JobRow, around: VerdictContext, since: int) -> Found | None:
    """Returns RESTARTED if the job ran before Redis restarted, and its lock did not outlive that."""
    at = around.restarted_at
    if at is None or not at <= since <= at + _lock(around) + _SLACK:
        return None
    if row.processed_at is not None and row.processed_at > at:
        return None
    together = f"; {around.lost_together:,} locks were lost with it" if around.lost_together > 1 else ""
    return LossCause.RESTARTED, f"Redis restarted {age(around.now - at)} ago (its run id changed){together}."


def _coincided(row: JobRow, around: VerdictContext, gone: Sequence[WorkerChange]) -> Found | None:
    """Returns UNKNOWN if a worker left about when the job started while others are connected: it may have been
    another's. A departure is noticed some seconds after it.
    """
    started = row.processed_at
    if started is None or not around.workers or any(change.at - started > _SLACK for change in gone):
        return None
    ago = age(around.now - gone[-1].at)
    worker = worker_label(gone[-1], row)
    return LossCause.UNKNOWN, f"{worker} lost its connection {ago} ago, as the job started: it may have been another's."


def _departed(row: JobRow, around: VerdictContext, gone: Sequence[WorkerChange]) -> Found:
    """Returns the cause if its worker left, or one that may have been its worker: what came after tells why."""
    turnover = _turnover(around, gone[-1])
    left, came = len(turnover.left), len(turnover.came)
    if left >= MANY and 2 * came > left and turnover.has_new_processes(_lock(around) * RECONNECTS_FROM):
        ago = age(around.now - turnover.left[-1].at)
        return LossCause.DEPLOYED, f"{_workers(left)} disconnected {ago} ago, and {came:,} replacements are connected."
    last = gone[-1]
    said = f"{worker_label(last, row)} lost its connection {age(around.now - last.at)} ago{_load(last)}"
    if known := _ended(last, said, is_alone=not came):
        return known
    if came:
        return (
            LossCause.UNKNOWN,
            f"{said}, and {_workers(came)} connected: restarted, replaced, or briefly disconnected.",
        )
    if around.now - last.at < SETTLED_AFTER * _lock(around):
        return LossCause.UNKNOWN, f"{said}; whether it is replaced is not known yet."
    if left >= MANY:
        return (
            LossCause.UNKNOWN,
            f"{_workers(left)} lost their connections, and none replaced them: stopped, or disconnected.",
        )
    return LossCause.CRASHED, f"{said}, and none replaced it within {age(SETTLED_AFTER * _lock(around))}."


def _ended(last: WorkerChange, said: str, *, is_alone: bool) -> Found | None:
    """Returns the cause if its log or n8n's registry tells how it ended. A replaced one may have been stopped."""
    if last.gave_up_after is not None:
        return (
            LossCause.TIMED_OUT,
            f"{said}: it did not end within its {last.gave_up_after} s after SIGTERM, says its log.",
        )
    if last.ending == InstanceEnding.DIED and is_alone:
        return LossCause.CRASHED, f"{said} and has sent n8n no heartbeat since: its process ended without a shutdown."
    return None


def _missing(row: JobRow, around: VerdictContext) -> Found | None:
    """Returns UNKNOWN with what is known if the holder is gone and its departure was not seen."""
    if holder_presence(row, around) is not HolderPresence.GONE:
        return None
    if around.nobody_is_here:
        return (
            LossCause.UNKNOWN,
            "no worker of this queue is connected; when and why the last one disconnected was not recorded.",
        )
    return (
        LossCause.UNKNOWN,
        f"worker {printable(row.worker)} is not connected; when and why it disconnected was not recorded.",
    )


def _unresponsive(row: JobRow, around: VerdictContext, since: int) -> Found | None:
    """Returns the cause if no worker has left: the holder does not renew, as it is starved, stopped or cut off."""
    if not around.workers:
        return None
    if holder_presence(row, around) is HolderPresence.HERE:
        who = f"worker {printable(row.worker)}"
        if any(change.name == row.worker and _is_near(change, around, since) for change in around.came):
            return LossCause.UNKNOWN, f"{who} has reconnected: it was restarted, or briefly disconnected."
        said = f"{who} is still connected, but the lock was not renewed"
    elif around.was_watched_since(row.processed_at):
        who = "its worker" if around.workers == 1 else "all workers"
        said = f"{who} stayed connected, but the lock was not renewed"
    else:
        return None
    if around.cpu is not None and around.cpu >= BUSY_CPU:
        return LossCause.STARVED, f"{said}: {_server(around, since)}."
    if around.cpu is None:
        return LossCause.UNKNOWN, f"{said}: its event loop is busy, its process is stopped, or its network is cut."
    return LossCause.UNKNOWN, f"{said}: {_server(around, since)} only, so its process hangs or its network is cut."


def worker_label(change: WorkerChange, row: JobRow) -> str:
    """Returns the name of the worker that left: by the job's `pb` field, or by n8n's registry of its processes."""
    if change.name and change.name == row.worker:
        return f"worker {printable(row.worker)}"
    return f"worker {printable(change.instance)}" if change.instance else "a worker"


def lost_instance(row: JobRow, around: VerdictContext, since: int) -> str:
    """Returns the n8n process that had this job if only one that left can have had it, else "". A process that left
    before the lock was last renewed did not have it.
    """
    last = renewed_at(row, around)
    gone = (change for change in _gone(row, around, since) if last is None or change.at >= last)
    found = {change.instance for change in gone}
    return found.pop() if len(found) == 1 else ""


@dataclass(frozen=True, slots=True)
class _Turnover:
    """Workers that left at about the same time, and those that are connected in their place; oldest first."""

    left: tuple[WorkerChange, ...]
    came: tuple[WorkerChange, ...]

    def has_new_processes(self, reconnects_from: float) -> bool:
        """Returns True if they are not the old ones, reconnected: new names, new hosts, or there too soon."""
        before = set(map(_identity, self.left))
        if any(_identity(one) not in before for one in self.came):
            return True
        pairs = zip(self.left, self.came, strict=False)
        return any(new.at - old.at < reconnects_from for old, new in pairs)


def _turnover(around: VerdictContext, last: WorkerChange) -> _Turnover:
    """Pairs workers that left with their replacements, which come after them, or overlap them by a lock's length at
    most, and are still connected. Connections that came and went meanwhile were neither: Bull, when it is closed,
    connects once more for a moment.
    """
    lock = _lock(around)
    span = SETTLED_AFTER * lock
    left = [one for one in around.left if abs(one.at - last.at) <= span]
    came = [one for one in around.came if left[0].at - lock <= one.at <= left[-1].at + span]
    passing = {one.connection for one in came}
    return _Turnover(
        tuple(one for one in left if one.connection not in passing) or (last,),
        tuple(one for one in came if one.connection in around.connections),
    )


def _identity(change: WorkerChange) -> tuple[str, str]:
    """Returns name and host, as its connection tells: a monitor tells only some seconds later which server that is."""
    return change.name, host_of(change.connection.partition(" ")[0])


def _gone(row: JobRow, around: VerdictContext, since: int) -> tuple[WorkerChange, ...]:
    """Returns workers that left while this job's lock was expiring: by its name, else any without one."""
    known = departures(row.worker, around) if row.worker and not around.unnamed else around.left
    near = (change for change in known if _is_near(change, around, since))
    return tuple(change for change in near if _may_have_had(row, change, around, since))


def _may_have_had(row: JobRow, change: WorkerChange, around: VerdictContext, since: int) -> bool:
    """Returns False for workers that cannot have had the job: one that left before the job began; one that left when
    the lock had been left to expire already, as a lock lasts for a while after its worker; and one that shut down
    cleanly, as it waits for its jobs.
    """
    began = (row.processed_at or 0) - _CLOCKS
    if change.ending == InstanceEnding.STOPPED or change.at < began:
        return False
    outlives = (around.lock_length or 0) * around.renewed_above - _SLACK
    return row.lock is not None or change.at <= since - outlives or outlives <= 0


def _is_near(change: WorkerChange, around: VerdictContext, since: int) -> bool:
    return since - _lock(around) - _SLACK <= change.at <= since


def _lock(around: VerdictContext) -> int:
    return around.lock_length or LOCK_ASSUMED


def _server(around: VerdictContext, since: int) -> str:
    server = f"server {printable(around.server)}" if around.server else "its server"
    return f"{server} {'is' if around.now - since <= NEWS else 'was'} at {around.cpu:.0f} %"


def _load(last: WorkerChange) -> str:
    if last.cpu is None or last.cpu < BUSY_CPU:
        return ""
    return f" (server {printable(last.host)} was at {last.cpu:.0f} %)"


def _workers(count: int) -> str:
    return f"{count:,} worker{'s' * (count != 1)}"
