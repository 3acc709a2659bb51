"""Decides which texts of a job may be fetched. Redis has no part of a hash field: it comes whole or not at all.

So every length is asked first (HSTRLEN), and only what fits is fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from recovery.backends.base import Command
from recovery.backends.redis_common import decode


def lengths(key: bytes, names: Sequence[bytes]) -> tuple[Command, ...]:
    return tuple((b"HSTRLEN", key, name) for name in names)


def fetch(key: bytes, names: Sequence[bytes]) -> Command:
    return b"HMGET", key, *names


class ByteBudget:
    """Number of bytes that may still be fetched, in all and of one text."""

    __slots__ = ("_each", "_left")

    def __init__(self, total: int, each: int) -> None:
        self._left = total
        self._each = each

    def affordable(self, names: Sequence[bytes], sizes: Sequence[Any]) -> Iterator[bytes]:
        """Yields the names whose texts fit, first come first served; empty ones are not worth a fetch."""
        for name, reply in zip(names, sizes, strict=True):
            size = decode.count(reply)
            if size and size <= min(self._each, self._left):
                self._left -= size
                yield name
