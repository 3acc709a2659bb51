"""Decodes the job totals of all queues, which the state store keeps in one hash with a field for each queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from recovery.domain.refs import QueueRef, raw, text
from recovery.domain.totals import Total


def field(ref: QueueRef) -> bytes:
    return raw(str(ref))


@lru_cache(maxsize=16_384)
def one(packed: bytes) -> Total | None:
    """Decodes one queue's totals; cached: scrapes outnumber changes, and the totals of idle queues are equal."""
    return Total.decode(packed)


def decoded(fields: Mapping[bytes, bytes]) -> dict[QueueRef, Total]:
    return dict(_decoded(fields))


def _decoded(fields: Mapping[bytes, bytes]) -> Iterator[tuple[QueueRef, Total]]:
    for name, packed in fields.items():
        if total := Total.decode(packed):
            yield QueueRef.parse(text(name)), total
