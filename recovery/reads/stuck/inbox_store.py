"""Stores the inbox for the web processes: compact JSON, compressed and signed, in one key of the state store."""

from __future__ import annotations

import zlib
from dataclasses import astuple, fields, replace
from functools import lru_cache
from typing import Any

import redis

from recovery.domain.actions.types import Action
from recovery.domain.identifiers import JobRef, QueueRef
from recovery.domain.jobs import JobLock, JobRow, JobState
from recovery.domain.policies.types import PolicyScanner
from recovery.domain.stuck.inbox import StalledCheckState, StuckInbox, StuckTally
from recovery.domain.stuck.outlook import QueueOutlook
from recovery.domain.stuck.types import LossCause, StuckJob, Verdict, VerdictKind
from recovery.stores.redis import redis_errors
from recovery.stores.state import documents, size_limits, state_keys

_PURPOSE = "inbox"
_KEEP_S = 7 * 86_400
_BROKEN = (ValueError, TypeError, IndexError, KeyError)
_ROW = tuple(field.name for field in fields(JobRow) if field.name not in ("ref", "state", "lock"))
_KINDS = (StuckInbox, StuckTally, StalledCheckState, QueueOutlook, StuckJob, Verdict, JobRow)
# Tells a reader of another version that it cannot read the document.
_SHAPE = zlib.crc32(",".join(field.name for kind in _KINDS for field in fields(kind)).encode())


def publish(store: redis.Redis, inbox: StuckInbox) -> None:
    """Stores the inbox as the newest one; raises StoreError."""
    packed = encode(inbox)
    with redis_errors.guarded(store):
        store.set(state_keys.INBOX, packed, ex=_KEEP_S)


def fetch(store: redis.Redis) -> StuckInbox | None:
    """Fetches the newest inbox; None if there is none that this version can read; raises StoreError."""
    with redis_errors.guarded(store):
        packed = size_limits.string_of(size_limits.ask_string(store, state_keys.INBOX))
    return decode(packed) if packed is not None else None


def encode(inbox: StuckInbox) -> bytes:
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
def decode(packed: bytes) -> StuckInbox | None:
    """Reverses `encode`; None for anything that this version did not write."""
    try:
        shape, checked_at, rows, queues, troubles = documents.unpack(_PURPOSE, packed)
        if shape != _SHAPE:
            return None
        return StuckInbox(checked_at, tuple(map(_read_stuck, rows)), tuple(map(_read_tally, queues)), tuple(troubles))
    except _BROKEN:
        return None


@lru_cache(maxsize=2)  # it is asked for with each scrape
def tallies(packed: bytes) -> tuple[int, tuple[StuckTally, ...]] | None:
    """Decodes the time of the pass and its counts, without the rows, which are most of it. None as in `decode`."""
    try:
        shape, checked_at, _, queues, _ = documents.unpack(_PURPOSE, packed)
        return (checked_at, tuple(map(_read_tally, queues))) if shape == _SHAPE else None
    except _BROKEN:
        return None


def _stuck(stuck: StuckJob) -> list[Any]:
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


def _read_stuck(written: list[Any]) -> StuckJob:
    (deployment, base, id), name, verdict, since, holder, row, *rest = written
    job = JobRef(QueueRef(deployment, base), id)
    return StuckJob(job, name, _verdict(verdict), since, holder, _read_row(job, row) if row else None, *rest)


def _row(row: JobRow) -> list[Any]:
    lock = [row.lock.token, row.lock.ttl] if row.lock else None
    return [row.state, lock, *(getattr(row, name) for name in _ROW)]


def _read_row(job: JobRef, written: list[Any]) -> JobRow:
    state, lock, *rest = written
    named = dict(zip(_ROW, rest, strict=True))
    return JobRow(ref=job, state=JobState(state), lock=JobLock(*lock) if lock else None, **named)


def _verdict(written: list[Any]) -> Verdict:
    kind, evidence, cause, cause_evidence, fate, until, suggests, orphaned, is_quarantined, behind, rescuer = written
    act = Action(suggests) if suggests else None
    told = Verdict(
        VerdictKind(kind), tuple(evidence), LossCause(cause), cause_evidence, fate, until, act, orphaned, is_quarantined
    )
    lock, scanner = VerdictKind(behind) if behind else None, PolicyScanner(rescuer) if rescuer else None
    return replace(told, behind=lock, rescuer=scanner) if lock or scanner else told


def _tally(tally: StuckTally) -> list[Any]:
    return [
        [tally.queue.deployment, tally.queue.base],
        dict(tally.kinds),
        *(tally.people, tally.looked, tally.left_out, tally.checked_at),
        astuple(tally.watchdog),
        tally.error,
        astuple(tally.outlook),
        dict(tally.holders),
    ]


def _read_tally(written: list[Any]) -> StuckTally:
    queue, kinds, people, looked, left_out, checked_at, watchdog, error, outlook, holders = written
    counted = {VerdictKind(kind): count for kind, count in kinds.items()}
    ref, dog = QueueRef(*queue), StalledCheckState(*watchdog)
    return StuckTally(ref, counted, people, looked, left_out, checked_at, dog, error, _outlook(*outlook), holders)


def _outlook(rescued: int, promised: int, until: int | None, by: str | None, is_for_now: bool) -> QueueOutlook:
    return QueueOutlook(rescued, promised, until, PolicyScanner(by) if by else None, is_for_now)
