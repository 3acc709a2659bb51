"""Reads all jobs of one of n8n's queues, with the execution that each is for: named fields only, in windows.

The places are read in the order of a job's life: one that moves on meanwhile is met again, and the later place counts.
`priority` is not among them: in Bull it only says where in `wait` a job with a priority belongs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from recovery.backends.base import Command, CommandClient
from recovery.backends.bull.keys import BullKeys
from recovery.backends.bull.n8n_detection import ABORT, DATA_LIMIT, OLD_ABORT
from recovery.backends.redis_common import decode, locks
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.identifiers import QueueRef, decode_name
from recovery.domain.jobs import JobLock, JobState
from recovery.domain.n8n.jobs import N8nJob

WINDOW = 1_000  # ids of one LRANGE, and jobs of one batch: far below 5 ms of the server's time
_OVERLAP = 100  # ids of the window before, met again: workers take from the tail meanwhile
FINISHED_LIMIT = 10_000  # jobs kept of each outcome: n8n keeps none unless told to
_ID = re.compile(r"[1-9][0-9]{0,9}", re.ASCII)  # n8n's ids are whole numbers of four bytes
_NUMBERS = (b"timestamp", b"processedOn", b"finishedOn")
_DATA, _PROGRESS = b"data", b"progress"
_PROGRESS_LIMIT = 64  # bytes: an abort is short; a webhook's answer, which n8n reports there too, may be megabytes
_EXECUTION, _WORKFLOW = "executionId", "workflowId"
_NAME_LIMIT = 100  # characters of a workflow's id
_LIMITS = ((_DATA, DATA_LIMIT), (_PROGRESS, _PROGRESS_LIMIT))  # fields, and how long a value that is read
_Ask = Callable[[bytes, int], tuple[Command, Command]]  # key and start → how long it is, and a window of it


@dataclass(frozen=True, slots=True)
class N8nJobPlaces:
    """State of every job of a queue. `left_out`: jobs beyond the limit."""

    ref: QueueRef
    states: Mapping[bytes, JobState]
    is_paused: bool = False
    left_out: int = 0


def places(wire: CommandClient, ref: QueueRef, limit: int) -> N8nJobPlaces:
    """Reads ids alone: 3 ms for ten thousand. Raises StoreError if a list is refused: it is not known to be empty."""
    keys, states, left_out = BullKeys(ref.base), dict[bytes, JobState](), 0
    for state, key, ask in _lists(keys):
        most = min(limit - len(states), FINISHED_LIMIT) if state.is_finished else limit - len(states)
        found, beyond = _ids(wire, ref, ask, key, max(0, most))
        states.update(dict.fromkeys(found, state))
        left_out += beyond
    (flag,) = wire.call([(b"EXISTS", keys.paused_flag)])
    return N8nJobPlaces(ref, states, bool(decode.count(flag)), left_out)


def active(wire: CommandClient, ref: QueueRef, limit: int) -> tuple[N8nJob, ...]:
    """Returns the oldest active jobs, with their locks; nothing else is read. Raises StoreError."""
    keys = BullKeys(ref.base)
    ids, _ = _ids(wire, ref, _list, keys.active, limit)
    return tuple(read(wire, ref, dict.fromkeys(ids, JobState.ACTIVE)))


def read(wire: CommandClient, ref: QueueRef, jobs: Mapping[bytes, JobState]) -> Iterator[N8nJob]:
    """Reads these jobs, three round trips a thousand. One whose hash is gone meanwhile is left out."""
    left = iter(jobs.items())
    while some := list(islice(left, WINDOW)):
        yield from _claims(wire, ref, some)


def split_unchanged(
    jobs: Mapping[bytes, JobState], known: Mapping[bytes, N8nJob]
) -> tuple[dict[bytes, JobState], list[N8nJob]]:
    """Splits the jobs of a second read into those to be read and those that are as before. Only active ones change."""
    same = {
        id: known[id]
        for id, state in jobs.items()
        if state is not JobState.ACTIVE and id in known and known[id].state is state
    }
    return {id: state for id, state in jobs.items() if id not in same}, list(same.values())


def _lists(keys: BullKeys) -> tuple[tuple[JobState, bytes, _Ask], ...]:
    return (
        (JobState.WAITING, keys.wait, _list),
        (JobState.PAUSED, keys.paused, _list),
        (JobState.DELAYED, keys.delayed, _set),
        (JobState.ACTIVE, keys.active, _list),
        (JobState.FAILED, keys.failed, _newest),
        (JobState.COMPLETED, keys.completed, _newest),
    )


def _list(key: bytes, start: int) -> tuple[Command, Command]:
    """Returns the commands for a window from the tail, where the oldest are: what is added in front moves nothing."""
    return (b"LLEN", key), (b"LRANGE", key, -(start + WINDOW), -(start + 1))


def _set(key: bytes, start: int) -> tuple[Command, Command]:
    return (b"ZCARD", key), (b"ZRANGE", key, start, start + WINDOW - 1)


def _newest(key: bytes, start: int) -> tuple[Command, Command]:
    return (b"ZCARD", key), (b"ZREVRANGE", key, start, start + WINDOW - 1)


def _ids(wire: CommandClient, ref: QueueRef, ask: _Ask, key: bytes, most: int) -> tuple[list[bytes], int]:
    """Returns at most so many ids, and how many more there are."""
    found: dict[bytes, None] = {}
    start = length = 0
    while start == 0 or start < min(length, most):
        size, ids = wire.call(ask(key, start))
        raise_if_refused(size, ref, b"LLEN")
        raise_if_refused(ids, ref, b"LRANGE")
        length, window = decode.count(size) or 0, decode.items(ids)
        found.update(dict.fromkeys(reversed(window) if ask is _list else window))
        start += WINDOW - _OVERLAP
    return list(found)[:most], max(0, length - most)


def _claims(wire: CommandClient, ref: QueueRef, jobs: Sequence[tuple[bytes, JobState]]) -> Iterator[N8nJob]:
    keys = BullKeys(ref.base)
    limits = [_LIMITS if state is JobState.ACTIVE else _LIMITS[:1] for _, state in jobs]
    asked = [(b"HSTRLEN", keys.job(id), name) for (id, _), own in zip(jobs, limits, strict=True) for name, _ in own]
    sizes = iter(wire.call(asked))
    short = [[name for name, most in own if 0 < (decode.count(next(sizes)) or 0) <= most] for own in limits]
    wanted = [(*_NUMBERS, *names) for names in short]
    replies = wire.call([(b"HMGET", keys.job(id), *names) for (id, _), names in zip(jobs, wanted, strict=True)])
    locks = _locks(wire, keys, [id for id, state in jobs if state is JobState.ACTIVE])
    for (id, state), names, reply in zip(jobs, wanted, replies, strict=True):
        values = dict(zip(names, decode.fields(reply, len(names)), strict=True))
        if values[b"timestamp"] is not None or state is JobState.ACTIVE:
            yield _claim(ref, id, state, values, locks.get(id, (None, True)))


def _claim(
    ref: QueueRef, id: bytes, state: JobState, values: Mapping[bytes, Any], held: tuple[JobLock | None, bool]
) -> N8nJob:
    execution, workflow = named(values.get(_DATA))
    return N8nJob(
        job=ref.job(decode_name(id)),
        state=state,
        execution=execution,
        workflow=workflow,
        lock=held[0],
        lock_known=held[1],
        added_at=decode.moment(values[b"timestamp"]),
        processed_at=decode.moment(values[b"processedOn"]),
        finished_at=decode.moment(values[b"finishedOn"]),
        is_aborting=_is_abort(values.get(_PROGRESS)),
    )


def named(data: Any) -> tuple[str, str]:
    """Returns the execution and the workflow that a job's data names; "" for an execution id that no database has."""
    written = decode.mapping(decode.octets(data))
    execution, workflow = (str(written.get(name, "")) for name in (_EXECUTION, _WORKFLOW))
    return execution if _ID.fullmatch(execution) else "", workflow[:_NAME_LIMIT]


def _is_abort(progress: Any) -> bool:
    return decode.from_json(decode.octets(progress)) in (ABORT, OLD_ABORT)


def _locks(wire: CommandClient, keys: BullKeys, ids: Sequence[bytes]) -> dict[bytes, tuple[JobLock | None, bool]]:
    if not ids:
        return {}
    replies = wire.call([command for id in ids for command in locks.ask(keys, id)])
    pairs = zip(replies[:: locks.WIDTH], replies[1 :: locks.WIDTH], strict=True)
    return {id: locks.read(token, ttl) for id, (token, ttl) in zip(ids, pairs, strict=True)}
