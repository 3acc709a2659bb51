"""The data of many jobs at once, as their producer wrote it; nothing that is too long."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from recovery.backends.base import Command, Wire
from recovery.backends.shared import decode, payloads
from recovery.backends.shared.keys import Keys
from recovery.domain.counts import Library
from recovery.domain.refs import QueueRef, raw
from recovery.errors import JobMissing
from recovery.reads.lists import Queue

LIMIT = 64 * 1024  # bytes of one job: an id or a verdict is not worth more
TURN_BYTES = 1024 * 1024  # of data read in one go: a few milliseconds of the server's time
_NAMES = (b"data",)


def data_of(queue: Queue, ids: Iterable[str]) -> dict[str, bytes]:
    """By id; what is gone, too long, or cannot be read is left out, and a row that has none. Raises StoreError."""
    if queue.flavour.library is not Library.TABLE:
        return dict(data(queue.wire, queue.ref, ids))
    found = {}
    for id in ids:
        with suppress(JobMissing):
            text = queue.reader.job(queue.wire, queue.ref, id, limit=LIMIT).data
            if text.size and not text.is_cut:
                found[id] = text.value.encode("utf-8", "replace")
    return found


def data(wire: Wire, ref: QueueRef, ids: Iterable[str], *, limit: int = LIMIT) -> Iterator[tuple[str, bytes]]:
    """Of jobs in Redis; empty where a job has none."""
    keys = Keys(ref.base)
    sizes = _sizes(wire, keys, list(dict.fromkeys(ids)), limit)
    yield from ((id, b"") for id, size in sizes.items() if not size)
    for part in _turns(sizes):
        found = zip(part, _read(wire, keys, part), strict=True)
        yield from ((id, one) for id, one in found if one is not None)


def _sizes(wire: Wire, keys: Keys, ids: Sequence[str], limit: int) -> dict[str, int]:
    """Of those that can be measured."""
    asked = [command for id in ids for command in payloads.lengths(keys.job(raw(id)), _NAMES)]
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


def _read(wire: Wire, keys: Keys, ids: Sequence[str]) -> list[bytes | None]:
    asked: list[Command] = [(b"HGET", keys.job(raw(id)), *_NAMES) for id in ids]
    return [decode.octets(reply) for reply in wire.call(asked)]
