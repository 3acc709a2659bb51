"""Bounds what one answer of the state store may take: other programs may have written what is read there.

Strings are asked for by their first bytes (`GETRANGE`), hashes by scripts that look at sizes first (here, and for those
that monitors write server_hashes.py). Behind both stands a limit for each reply, at which the connection is given up.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from redis._parsers.hiredis import NOT_ENOUGH_DATA, _AsyncHiredisParser, _HiredisParser

from recovery.stores.redis.redis_errors import ReplyTooLarge
from recovery.stores.redis.scripts import script

REPLY_LIMIT = 64 * 1024 * 1024  # bytes; the largest that we write ourselves is some MB
STRING_LIMIT = 8 * 1024 * 1024  # bytes of a string that is signed; a snapshot of ten thousand queues is below one MB
SMALL_LIMIT = 1024 * 1024  # bytes of one that is not: as JSON it may take thirty times as much
TALLIES_LIMIT = 4 * SMALL_LIMIT  # of ten thousand queues some MB
FIELDS_LIMIT = 2_000  # of a hash: as many as there are servers, channels, scanners or prefixes, and more
FIELD_LIMIT = 16 * 1024  # bytes
_SMALL_HASH = script(Path(__file__).parent / "lua" / "read" / "read-small-hash.lua")


class _Reader:
    """Counts the bytes of a reply that is not whole yet."""

    __slots__ = ("_reader", "_waiting")

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._waiting = 0

    def feed(self, data: Any, *span: int) -> None:
        self._waiting += span[1] if span else len(data)
        if self._waiting > REPLY_LIMIT:
            raise ReplyTooLarge(f"an answer is larger than {REPLY_LIMIT // 2**20} MB")
        self._reader.feed(data, *span)

    def gets(self, *args: Any) -> Any:
        reply = self._reader.gets(*args)
        if reply is not NOT_ENOUGH_DATA:
            self._waiting = 0
        return reply

    def has_data(self) -> bool:
        return bool(self._reader.has_data())


class BoundedParser(_HiredisParser):
    def on_connect(self, connection: Any, **kwargs: Any) -> None:
        super().on_connect(connection, **kwargs)  # type: ignore[no-untyped-call]  # redis-py leaves it so
        self._reader: Any = _Reader(self._reader)


class AsyncBoundedParser(_AsyncHiredisParser):
    def on_connect(self, connection: Any) -> None:
        super().on_connect(connection)  # type: ignore[no-untyped-call]  # redis-py leaves it so
        self._reader: Any = _Reader(self._reader)


def ask_string(pipeline: Any, key: bytes, most: int = STRING_LIMIT) -> Any:
    """Asks for a string, and for one byte more than it may have; on a client, the answer."""
    return pipeline.getrange(key, 0, most)


def string_of(reply: Any, most: int = STRING_LIMIT) -> bytes | None:
    """Returns the string; None when there is none, or one that is too large to be ours."""
    return reply if isinstance(reply, bytes) and 0 < len(reply) <= most else None


def ask_hash(pipeline: Any, key: bytes) -> Any:
    """Asks for a small hash; on a client, the answer."""
    return pipeline.eval(_SMALL_HASH.text, 1, key, FIELDS_LIMIT, FIELD_LIMIT)


def hash_of(reply: Any) -> Mapping[bytes, bytes]:
    """Returns the hash; empty when there is none, or one that is too large to be ours."""
    parts = reply if isinstance(reply, list) else []
    return dict(zip(parts[::2], parts[1::2], strict=True))
