"""Reads the lines a job wrote with `job.log`, oldest first."""

from __future__ import annotations

from recovery.backends.base import CommandClient
from recovery.backends.redis_common import decode
from recovery.backends.redis_common.layout import QueueContext
from recovery.backends.redis_common.reply_errors import raise_if_refused
from recovery.domain.jobs import LogPage
from recovery.stores.redis.reply_limits import OversizedReply

PAGE = 1000  # lines at most in one read
# A list entry comes whole or not at all, and its length cannot be asked. So lines are read a few at a time, and no
# more of them once this many bytes have come; each is then cut to what a person reads.
PAGE_BYTES = 128 * 1024
_STEP = 50
_SINGLE = 5  # lines read one by one where a step of them is too long
LINE = 2000  # characters


def read(wire: CommandClient, scene: QueueContext, id: bytes, start: int, size: int) -> LogPage:
    key = scene.keys.logs(id)
    start, size = max(0, start), max(1, min(size, PAGE))
    (length,) = wire.call([(b"LLEN", key)])
    lines: list[bytes] = []
    weight = 0
    while len(lines) < size and weight < PAGE_BYTES:
        first = start + len(lines)
        step = min(_STEP, size - len(lines))
        (reply,) = wire.call([(b"LRANGE", key, first, first + step - 1)])
        if isinstance(reply, OversizedReply):
            lines += _one_by_one(wire, scene, key, range(first, first + min(step, _SINGLE)))
            break
        raise_if_refused(reply, scene.ref, b"LRANGE")
        more = decode.items(reply)
        lines += more
        weight += sum(map(len, more))
        if len(more) < step:
            break
    return LogPage(tuple(map(_line, lines)), start, decode.count(length))


def _one_by_one(wire: CommandClient, scene: QueueContext, key: bytes, places: range) -> list[bytes]:
    """Reads a few lines of which one or more are too long to be read: that is said in their place."""
    replies = wire.call([(b"LINDEX", key, place) for place in places])
    for reply in replies:
        if not isinstance(reply, OversizedReply):
            raise_if_refused(reply, scene.ref, b"LINDEX")
    return [str(reply).encode() if isinstance(reply, Exception) else reply for reply in replies if reply is not None]


def _line(raw: bytes) -> str:
    # A character has up to four bytes: cut before decoding, so that a huge line costs no huge string.
    written = raw[: LINE * 4].decode("utf-8", "replace")
    return written if len(written) <= LINE and len(raw) <= LINE * 4 else written[:LINE] + "…"
