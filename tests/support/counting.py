"""Round trips to the queues' Redis, counted where they leave: at the connections of this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from recovery.stores.redis.connection import RedisConnection
from recovery.stores.redis.pipeline import CommandChunk


@contextmanager
def round_trips(patch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """How many commands were sent and the first of them, once for each time that an answer is waited for."""
    sent: list[str] = []
    post = RedisConnection.post

    def counted(line: RedisConnection, *chunks: CommandChunk) -> None:
        first = chunks[0].sent.split(b"\r\n")[2].decode()
        sent.append(f"{sum(chunk.replies for chunk in chunks)} from {first} on")
        post(line, *chunks)

    with patch.context() as patched:
        patched.setattr(RedisConnection, "post", counted)
        yield sent
