"""The sums of all queues, as the state store keeps them: one field of a hash each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache

from recovery.domain.refs import QueueRef, raw, text
from recovery.domain.totals import Total


def field(ref: QueueRef) -> bytes:
    return raw(str(ref))


@lru_cache(maxsize=16_384)
def one(packed: bytes) -> Total | None:
    """As often as whoever scrapes us asks: a sum changes once a minute, and those of idle queues look the same."""
    return Total.decode(packed)


def decoded(fields: Mapping[bytes, bytes]) -> dict[QueueRef, Total]:
    return dict(_decoded(fields))


def _decoded(fields: Mapping[bytes, bytes]) -> Iterator[tuple[QueueRef, Total]]:
    for name, packed in fields.items():
        if total := Total.decode(packed):
            yield QueueRef.parse(text(name)), total
