"""Stores the inbox for the web processes: compact JSON, compressed and signed, in one key of the state store."""

from __future__ import annotations

import zlib
from dataclasses import astuple, fields, replace
from functools import lru_cache
from typing import Any

import redis

from recovery.connections import faults, state, state_limits
from recovery.domain.acting import Act
from recovery.domain.inbox import Inbox, Tally, Watchdog
from recovery.domain.jobs import JobRow, Lock, State
from recovery.domain.outlook import QueueOutlook
from recovery.domain.policy import Scanner
from recovery.domain.refs import JobRef, QueueRef
from recovery.domain.verdicts import Cause, Kind, Stuck, Verdict
from recovery.reads import documents

_PURPOSE = "inbox"
_KEEP_S = 7 * 86_400
_BROKEN = (ValueError, TypeError, IndexError, KeyError)
_ROW = tuple(field.name for field in fields(JobRow) if field.name not in ("ref", "state", "lock"))
_KINDS = (Inbox, Tally, Watchdog, QueueOutlook, Stuck, Verdict, JobRow)
# Tells a reader of another version that it cannot read the document.
_SHAPE = zlib.crc32(",".join(field.name for kind in _KINDS for field in fields(kind)).encode())


def publish(store: redis.Redis, inbox: Inbox) -> None:
    """Stores the inbox as the newest one; raises StoreError."""
    packed = encode(inbox)
    with faults.guarded(store):
        store.set(state.INBOX, packed, ex=_KEEP_S)


def fetch(store: redis.Redis) -> Inbox | None:
    """Fetches the newest inbox; None if there is none that this version can read; raises StoreError."""
    with faults.guarded(store):
        packed = state_limits.string_of(state_limits.ask_string(store, state.INBOX))
    return decode(packed) if packed is not None else None


def encode(inbox: Inbox) -> bytes:
    """Encodes the inbox; about 10 ms for a thousand rows."""
    document = [
        _SHAPE,
        inbox.checked_at,
        [_stuck(stuck) for stuck in inbox.rows],
        [_tally(tally) for tally in inbox.queues],
        inbox.faults,
    ]
    return documents.pack(_PURPOSE, document)


@lru_cache(maxsize=2)  # it is fetched once a second, and changes every few
def decode(packed: bytes) -> Inbox | None:
    """Reverses `encode`; None for anything that this version did not write."""
    try:
        shape, checked_at, rows, queues, troubles = documents.unpack(_PURPOSE, packed)
        if shape != _SHAPE:
            return None
        return Inbox(checked_at, tuple(map(_read_stuck, rows)), tuple(map(_read_tally, queues)), tuple(troubles))
    except _BROKEN:
        return None


@lru_cache(maxsize=2)  # it is asked for with each scrape
def tallies(packed: bytes) -> tuple[int, tuple[Tally, ...]] | None:
    """Decodes the time of the pass and its counts, without the rows, which are most of it. None as in `decode`."""
    try:
        shape, checked_at, _, queues, _ = documents.unpack(_PURPOSE, packed)
        return (checked_at, tuple(map(_read_tally, queues))) if shape == _SHAPE else None
    except _BROKEN:
        return None


def _stuck(stuck: Stuck) -> list[Any]:
    queue, row = stuck.job.queue, stuck.row
    return [
        [queue.deployment, queue.base, stuck.job.id],
        stuck.name,
        astuple(stuck.verdict),
        stuck.since,
        stuck.holder,
        _row(row) if row else None,
        stuck.incident,
        stuck.server,
        stuck.execution,
    ]


def _read_stuck(written: list[Any]) -> Stuck:
    (deployment, base, id), name, verdict, since, holder, row, *rest = written
    job = JobRef(QueueRef(deployment, base), id)
    return Stuck(job, name, _verdict(verdict), since, holder, _read_row(job, row) if row else None, *rest)


def _row(row: JobRow) -> list[Any]:
    lock = [row.lock.token, row.lock.ttl] if row.lock else None
    return [row.state, lock, *(getattr(row, name) for name in _ROW)]


def _read_row(job: JobRef, written: list[Any]) -> JobRow:
    state, lock, *rest = written
    named = dict(zip(_ROW, rest, strict=True))
    return JobRow(ref=job, state=State(state), lock=Lock(*lock) if lock else None, **named)


def _verdict(written: list[Any]) -> Verdict:
    kind, evidence, cause, cause_evidence, fate, until, suggests, orphaned, is_quarantined, behind, rescuer = written
    act = Act(suggests) if suggests else None
    told = Verdict(
        Kind(kind), tuple(evidence), Cause(cause), cause_evidence, fate, until, act, orphaned, is_quarantined
    )
    lock, scanner = Kind(behind) if behind else None, Scanner(rescuer) if rescuer else None
    return replace(told, behind=lock, rescuer=scanner) if lock or scanner else told


def _tally(tally: Tally) -> list[Any]:
    return [
        [tally.queue.deployment, tally.queue.base],
        dict(tally.kinds),
        *(tally.people, tally.looked, tally.left_out, tally.checked_at),
        astuple(tally.watchdog),
        tally.error,
        astuple(tally.outlook),
        dict(tally.holders),
    ]


def _read_tally(written: list[Any]) -> Tally:
    queue, kinds, people, looked, left_out, checked_at, watchdog, error, outlook, holders = written
    counted = {Kind(kind): count for kind, count in kinds.items()}
    ref, dog = QueueRef(*queue), Watchdog(*watchdog)
    return Tally(ref, counted, people, looked, left_out, checked_at, dog, error, _outlook(*outlook), holders)


def _outlook(rescued: int, promised: int, until: int | None, by: str | None, is_for_now: bool) -> QueueOutlook:
    return QueueOutlook(rescued, promised, until, Scanner(by) if by else None, is_for_now)
