"""Reads what an action must know of jobs before it begins: their options, and whether they are n8n's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recovery.backends.base import CommandClient, Target
from recovery.backends.bull.keys import BullKeys
from recovery.backends.bull.n8n_detection import DATA_LIMIT, EXECUTION, is_n8n
from recovery.backends.redis_common import decode, script_reads
from recovery.domain.actions.types import ExpectedJob
from recovery.domain.identifiers import QueueRef, encode_name

_OPTIONS_LIMIT = 64 * 1024  # bytes: a library writes some hundred
_SAMPLE = 5  # jobs of each state that are looked at to know whose queue it is


def options(target: Target, jobs: Sequence[ExpectedJob]) -> list[Mapping[str, Any]]:
    """Returns the options, written once when a job is added, so before the script runs. Unreadable ones are empty."""
    return [decode.mapping(value) for value in _short(target, jobs, b"opts", _OPTIONS_LIMIT)]


def are_n8n_jobs(target: Target, jobs: Sequence[ExpectedJob]) -> list[bool]:
    return [is_n8n(data) for data in _short(target, jobs, b"data", DATA_LIMIT)]


def _short(target: Target, jobs: Sequence[ExpectedJob], name: bytes, limit: int) -> list[bytes | None]:
    """Returns one field of each job, as `_field` does, in one round trip: for callers that may run scripts."""
    ids = [encode_name(job.id) for job in jobs]
    return [found.get(name) for found in script_reads.fields(target, ids, (name,), longest=limit, most=limit)]


def executions(wire: CommandClient, ref: QueueRef, ids: Sequence[str]) -> dict[str, str]:
    """Returns the n8n execution that each job is for, by job; those that name none are left out."""
    found = _data(wire, ref, [encode_name(id) for id in ids])
    named = {id: decode.mapping(decode.octets(data)).get(EXECUTION) for id, data in zip(ids, found, strict=True)}
    return {id: str(execution) for id, execution in named.items() if execution}


def is_queue_of_n8n(target: Target) -> bool:
    """Returns True if a few jobs of any state are n8n's; a queue with no job at all shows nothing."""
    keys = BullKeys(target.ref.base)
    lists = [(b"LRANGE", key, -_SAMPLE, -1) for key in (keys.wait, keys.paused, keys.active)]
    sets = [(b"ZRANGE", key, 0, _SAMPLE - 1) for key in (keys.delayed, keys.completed, keys.failed)]
    ids = dict.fromkeys(id for reply in target.wire.call([*lists, *sets]) for id in decode.items(_if_list(reply)))
    return any(is_n8n(decode.octets(data)) for data in _data(target.wire, target.ref, ids))


def _data(wire: CommandClient, ref: QueueRef, ids: Iterable[bytes]) -> list[Any]:
    return _field(wire, ref, ids, b"data", DATA_LIMIT)


def _field(wire: CommandClient, ref: QueueRef, ids: Iterable[bytes], name: bytes, limit: int) -> list[Any]:
    """Returns one field of each job, None where it is longer than `limit`."""
    keys = BullKeys(ref.base)
    jobs = [keys.job(id) for id in ids]
    sizes = wire.call([(b"HSTRLEN", job, name) for job in jobs]) if jobs else []
    fits = [0 < (decode.count(size) or 0) <= limit for size in sizes]
    wanted = [(b"HGET", job, name) for job, is_short in zip(jobs, fits, strict=True) if is_short]
    replies = iter(wire.call(wanted) if wanted else [])
    return [next(replies) if is_short else None for is_short in fits]


def _if_list(reply: Any) -> Any:
    return reply if isinstance(reply, list) else []
