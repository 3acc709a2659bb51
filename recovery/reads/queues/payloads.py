"""Reads the data of many jobs at once, as their producer wrote it; data that is too long is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from recovery.backends.base import Command, CommandClient
from recovery.backends.redis_common import decode, payloads
from recovery.backends.redis_common.keys import Keys
from recovery.domain.identifiers import QueueRef, encode_name
from recovery.domain.queues.types import QueueLibrary
from recovery.errors import JobMissing
from recovery.reads.queues.job_lists import Queue

LIMIT = 64 * 1024  # bytes of one job: more costs too much for an id or a verdict
TURN_BYTES = 1024 * 1024  # of data read at once: a few milliseconds of the server's time
_NAMES = (b"data",)


def data_of(queue: Queue, ids: Iterable[str]) -> dict[str, bytes]:
    """Reads jobs' data, by id; jobs that are gone, too long or unreadable, and rows without data, are left out.

    Raises StoreError.
    """
    if queue.flavour.library is not QueueLibrary.TABLE:
        return dict(data(queue.wire, queue.ref, ids))
    found = {}
    for id in ids:
        with suppress(JobMissing):
            text = queue.reader.job(queue.wire, queue.ref, id, limit=LIMIT).data
            if text.size and not text.is_cut:
                found[id] = text.value.encode("utf-8", "replace")
    return found


def data(wire: CommandClient, ref: QueueRef, ids: Iterable[str], *, limit: int = LIMIT) -> Iterator[tuple[str, bytes]]:
    """Yields ids of jobs in Redis with their data; empty for a job without data."""
    keys = Keys(ref.base)
    sizes = _sizes(wire, keys, list(dict.fromkeys(ids)), limit)
    yield from ((id, b"") for id, size in sizes.items() if not size)
    for part in _turns(sizes):
        found = zip(part, _read(wire, keys, part), strict=True)
        yield from ((id, one) for id, one in found if one is not None)


def _sizes(wire: CommandClient, keys: Keys, ids: Sequence[str], limit: int) -> dict[str, int]:
    """Returns the size of each job's data, as far as it can be read and is within the limit."""
    asked = [command for id in ids for command in payloads.lengths(keys.job(encode_name(id)), _NAMES)]
    replies = wire.call(asked) if asked else []
    measured = zip(ids, map(decode.count, replies), strict=True)
    return {id: size for id, size in measured if size is not None and size <= limit}


def _turns(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    part: list[str] = []
    total = 0
    for id, size in sizes.items():
        if not size:
            continue
        if part and total + size > TURN_BYTES:
            yield part
            part, total = [], 0
        part.append(id)
        total += size
    if part:
        yield part


def _read(wire: CommandClient, keys: Keys, ids: Sequence[str]) -> list[bytes | None]:
    asked: list[Command] = [(b"HGET", keys.job(encode_name(id)), *_NAMES) for id in ids]
    return [decode.octets(reply) for reply in wire.call(asked)]
