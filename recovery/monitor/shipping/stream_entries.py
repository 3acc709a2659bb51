"""Packs log lines into entries of the stream: each has one label set, and a size that readers can decompress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from recovery.domain.logs.line_batches import LineBatch, Raw
from recovery.monitor.shipping.formats import Group

PARCEL = 512 * 1024  # bytes of text before compression
_MOMENT = 20  # bytes before each line
_OVERHEAD = 100  # bytes that the store needs for an entry, beside its labels and its body


@dataclass(frozen=True, slots=True)
class PackedStreamEntry:
    """Entry of the stream, ready to be written."""

    fields: dict[str, str | int | bytes]
    labels: str
    size: int  # approximate bytes in the store


def pack_entries(groups: Iterable[Group]) -> Iterator[PackedStreamEntry]:
    for labels, lines in groups:
        for some in _cut(lines):
            fields = LineBatch(tuple(some), dict(labels)).encode()
            written, body = fields["labels"], fields["body"]
            assert isinstance(written, str)  # noqa: S101 - it is JSON
            assert isinstance(body, bytes)  # noqa: S101 - it is packed
            yield PackedStreamEntry(fields, written, len(written.encode()) + len(body) + _OVERHEAD)


def _cut(lines: Sequence[Raw]) -> Iterator[Sequence[Raw]]:
    start = size = 0
    for number, (_, line) in enumerate(lines):
        size += len(line) + _MOMENT
        if size > PARCEL and number > start:
            yield lines[start:number]
            start, size = number, len(line) + _MOMENT
    if lines[start:]:
        yield lines[start:]
