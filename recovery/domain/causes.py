"""Why a job lost its holder: a hint, with the evidence it rests on. Without evidence there is no cause."""

from __future__ import annotations

from collections.abc import Sequence

from recovery.domain.ages import MINUTE, age
from recovery.domain.holders import NEWS, Holder, departures, holder
from recovery.domain.jobs import JobRow
from recovery.domain.refs import shown
from recovery.domain.surroundings import Change, Surroundings
from recovery.domain.verdicts import Cause

LOCK_ASSUMED = MINUTE  # the longest that is usual, where no lock has been seen
DEPLOY_WITHIN = MINUTE  # between the old workers' going and the new ones' coming
MANY = 3  # locks lost in one look: one worker may well hold two
BUSY_CPU = 80.0
_SLACK = 10_000  # ms: two looks

Found = tuple[Cause, str]
_NOTHING: Found = (Cause.UNKNOWN, "")


def cause(row: JobRow, around: Surroundings, since: int) -> Found:
    """`since`: when it was first seen without its holder."""
    gone = _gone(row, around, since)
    return (
        _restarted(row, around, since)
        or _deployed(around, gone)
        or _crashed(row, around, gone)
        or _starved(row, around, gone, since)
        or _NOTHING
    )


def _restarted(row: JobRow, around: Surroundings, since: int) -> Found | None:
    """It ran before the restart, and its lock did not outlive it."""
    at = around.restarted_at
    if at is None or not at - _SLACK <= since <= at + _lock(around) + _SLACK:
        return None
    if row.processed_at is not None and row.processed_at > at:
        return None
    together = f"; {around.lost_together:,} locks were lost with it" if around.lost_together > 1 else ""
    return Cause.RESTARTED, f"Redis restarted {age(around.now - at)} ago (its run id changed){together}."


def _deployed(around: Surroundings, gone: Sequence[Change]) -> Found | None:
    """Many at once, and others in their place within a minute."""
    if len(gone) < 2 and around.lost_together < MANY:
        return None
    came = [new for new in around.came if any(abs(new.at - old.at) <= DEPLOY_WITHIN for old in gone)]
    if not came:
        return None
    ago = age(around.now - gone[-1].at)
    return Cause.DEPLOYED, f"{_workers(len(gone))} left {ago} ago and {len(came):,} came within a minute."


def _crashed(row: JobRow, around: Surroundings, gone: Sequence[Change]) -> Found | None:
    if gone:
        last = gone[-1]
        who = f"worker {shown(last.name)}" if last.name else "a worker"
        return Cause.CRASHED, f"{who} lost its connection {age(around.now - last.at)} ago{_load(last)}."
    if holder(row, around) is not Holder.GONE:
        return None
    if around.nobody_is_here:
        return Cause.CRASHED, "no worker of this queue is connected any more."
    return Cause.CRASHED, f"worker {shown(row.worker)} is not connected any more."


def _starved(row: JobRow, around: Surroundings, gone: Sequence[Change], since: int) -> Found | None:
    """Nobody has gone, so the holder is there and does not renew: busy, hung, or stopped."""
    if gone or not around.workers:
        return None
    if holder(row, around) is Holder.HERE:
        who = f"worker {shown(row.worker)} is still connected"
    elif around.was_watched_since(row.processed_at):
        who = f"{'its worker' if around.workers == 1 else 'all workers'} stayed connected"
    else:
        return None
    how = "its event loop is busy or its process is stopped" if around.cpu is None else _busy(around, since)
    return Cause.STARVED, f"{who}, but the lock was not renewed: {how}."


def _gone(row: JobRow, around: Surroundings, since: int) -> tuple[Change, ...]:
    """Workers that went while this job's lock was running out: by its name, else any without one."""
    earliest, latest = since - _lock(around) - _SLACK, since + _SLACK
    known = departures(row.worker, around) if row.worker and not around.unnamed else around.left
    return tuple(change for change in known if earliest <= change.at <= latest)


def _lock(around: Surroundings) -> int:
    return around.lock_length or LOCK_ASSUMED


def _busy(around: Surroundings, since: int) -> str:
    server = f"server {shown(around.server)}" if around.server else "its server"
    said = f"{server} {'is' if around.now - since <= NEWS else 'was'} at {around.cpu:.0f} %"
    if around.cpu is not None and around.cpu >= BUSY_CPU:
        return said
    return f"{said} only, so one process of it hangs or is stopped"


def _load(last: Change) -> str:
    if last.cpu is None or last.cpu < BUSY_CPU:
        return ""
    return f"; server {shown(last.host)} was at {last.cpu:.0f} %"


def _workers(count: int) -> str:
    return f"{count:,} worker{'s' * (count != 1)}"
