"""Reads failed jobs for auto-retry: the oldest first, each with the error of its last attempt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recovery.backends.base import Command
from recovery.backends.redis_common import decode, payloads
from recovery.backends.redis_common.keys import Keys
from recovery.domain.auto_retry.job_failure import JobFailure
from recovery.domain.identifiers import encode_name
from recovery.domain.jobs import JobRow, JobState
from recovery.domain.queues.types import QueueLibrary
from recovery.reads.queues.job_lists import Queue

WINDOW = 50  # jobs read at once: about a thousand short commands
STACK_LIMIT = 64 * 1024  # bytes of all attempts' stacks; the libraries keep ten lines of each
TURN_BYTES = 1024 * 1024  # of stacks read at once
_STACK = (b"stacktrace",)


@dataclass(frozen=True, slots=True)
class FailedJob:
    """Failed job with its error. `unread` says what is too long to be read, so that it is not retried; "": nothing."""

    row: JobRow
    failure: JobFailure
    unread: str = ""


@dataclass(frozen=True, slots=True)
class FailedJobsPage:
    """Page of failed jobs; `next` is "" on the last page."""

    jobs: tuple[FailedJob, ...]
    next: str = ""
    total: int | None = None


def window(queue: Queue, cursor: str = "", size: int = WINDOW) -> FailedJobsPage:
    """Reads one page of a queue's failed jobs. Raises StoreError."""
    page = queue.reader.page(queue.wire, queue.ref, JobState.FAILED, cursor=cursor, size=size, oldest_first=True)
    return FailedJobsPage(load_errors(queue, page.rows), page.next, page.total)


def load_errors(queue: Queue, rows: Sequence[JobRow]) -> tuple[FailedJob, ...]:
    """Returns the rows that exist and are failed, with their errors. Raises StoreError."""
    there = [row for row in rows if not row.missing and row.state is JobState.FAILED]
    stacks = _stacks(queue, [row.id for row in there])
    return tuple(_failed(row, stacks.get(row.id, "")) for row in there)


def _failed(row: JobRow, stack: str | None) -> FailedJob:
    failure = JobFailure.of(row, stack or "")
    if stack is None:
        return FailedJob(
            row, failure, "Its stack trace is too long to be read, and may mark the error as unrecoverable."
        )
    if decode.is_too_long(row.name) or decode.is_too_long(row.reason):
        return FailedJob(row, failure, "Its name or its error is too long to be read.")
    return FailedJob(row, failure)


def _stacks(queue: Queue, ids: Sequence[str]) -> dict[str, str | None]:
    """Reads the stack of each job's last attempt; None where it is too long. Jobs without one are left out."""
    if queue.flavour.library is QueueLibrary.TABLE or not ids:
        return {}
    keys = Keys(queue.ref.base)
    replies = queue.wire.call([payloads.lengths(keys.job(encode_name(id)), _STACK)[0] for id in ids])
    sizes = {id: decode.count(reply) or 0 for id, reply in zip(ids, replies, strict=True)}
    found: dict[str, str | None] = {id: None for id, size in sizes.items() if size > STACK_LIMIT}
    for part in _turns({id: size for id, size in sizes.items() if 0 < size <= STACK_LIMIT}):
        asked: list[Command] = [(b"HGET", keys.job(encode_name(id)), *_STACK) for id in part]
        found |= {id: _last(reply) for id, reply in zip(part, queue.wire.call(asked), strict=True)}
    return found


def _turns(sizes: dict[str, int]) -> list[list[str]]:
    parts: list[list[str]] = []
    room = 0
    for id, size in sizes.items():
        if size > room:
            parts.append([])
            room = TURN_BYTES
        parts[-1].append(id)
        room -= size
    return parts


def _last(reply: object) -> str:
    """Returns the last of a list of stacks, one per attempt; what is no list is returned as text."""
    stacks = decode.from_json(reply)
    if not isinstance(stacks, list):
        return decode.prose(reply)
    return stacks[-1] if stacks and isinstance(stacks[-1], str) else ""
