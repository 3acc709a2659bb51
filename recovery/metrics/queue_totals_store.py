"""Decodes the job totals of all queues, which the state store keeps in one hash with a field for each queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from recovery.domain.identifiers import QueueRef, decode_name, encode_name
from recovery.domain.metrics.queue_totals import QueueTotal


def field(ref: QueueRef) -> bytes:
    return encode_name(str(ref))


@lru_cache(maxsize=16_384)
def decode_total(packed: bytes) -> QueueTotal | None:
    """Decodes one queue's totals; cached: scrapes outnumber changes, and the totals of idle queues are equal."""
    return QueueTotal.decode(packed)


def decode_totals(fields: Mapping[bytes, bytes]) -> dict[QueueRef, QueueTotal]:
    return dict(_decoded(fields))


def _decoded(fields: Mapping[bytes, bytes]) -> Iterator[tuple[QueueRef, QueueTotal]]:
    for name, packed in fields.items():
        if total := QueueTotal.decode(packed):
            yield QueueRef.parse(decode_name(name)), total
