"""Limits the size of each reply of a queues' Redis: a longer one is dropped while it arrives, and never held in memory.

Redis keeps strings of 512 MB, and any client of a queue may put one into a list, a sorted set or `meta`, of which no
command tells the size beforehand. A connection hands its bytes to hiredis as long as they are few. When one string or
the whole flight grows long, the flight is cut into single replies here, without objects, and each is measured.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import hiredis
import redis

from recovery.domain.identifiers import decode_name, printable

MIB = 1024 * 1024
EASY_STRING = MIB  # bytes of one string that hiredis may hold before the flight is measured
EASY_FLIGHT = 12 * MIB  # bytes of a flight that is not measured: no reply in it can be longer
FLIGHT_LIMIT = 40 * MIB  # bytes of all replies of a flight together; of what comes after them only short ones are read
SHORT = 16 * 1024
SKIPPED = 4 * MIB  # bytes read only to be dropped; where more are to come, another connection is quicker

# Bytes of one reply. `HGET` is for texts whose length was asked (HSTRLEN) and fits what a page loads (LOAD_LIMIT);
# a script measures what it answers itself; one string of another command is an id, a name or a number; the others are
# windows of lists.
_SCRIPTS = (b"EVALSHA", b"EVAL")
_STRING, _WINDOW, _MEASURED, _SERVER = MIB, 4 * MIB, 10 * MIB, 16 * MIB
_LIMITS = {
    **dict.fromkeys((b"GET", b"HMGET", b"LINDEX"), _STRING),
    **dict.fromkeys((b"HGET", *_SCRIPTS), _MEASURED),
    **dict.fromkeys((b"CLIENT", b"INFO"), _SERVER),  # some 40,000 connections
}

# Commands that change nothing: they may be sent again on another connection.
_READS = frozenset(
    (
        *(b"CLIENT", b"CLUSTER", b"EXISTS", b"GET", b"GETRANGE", b"HEXISTS", b"HGET", b"HKEYS", b"HLEN", b"HMGET"),
        *(b"HRANDFIELD", b"HSTRLEN", b"INFO", b"LINDEX", b"LLEN", b"LPOS", b"LRANGE", b"PING", b"PTTL", b"PUBSUB"),
        *(b"SCAN", b"SCARD", b"SISMEMBER", b"SMEMBERS", b"SSCAN", b"STRLEN", b"TYPE", b"XLEN", b"XRANGE"),
        *(b"XREVRANGE", b"ZCARD", b"ZCOUNT", b"ZRANGE", b"ZRANGEBYSCORE", b"ZREVRANGE", b"ZREVRANGEBYSCORE"),
        *(b"ZRANK", b"ZREVRANK", b"ZSCORE"),
    )
)
_CURSOR = re.compile(rb"\*2\r\n\$\d+\r\n(\d+)\r\n")
_SIMPLE = b"+-:,#_("
_STRINGS = b"$=!"
_ARRAYS = b"*~>"
_KEY_SHOWN = 120  # characters


class OversizedReply(redis.ResponseError):
    """Stands in the list of replies for one that was longer than its limit. Nothing of it was kept, but for the cursor
    with which the answer to a SCAN begins.
    """

    cursor: bytes | None = None


class UnreadReply(OversizedReply):
    """Stands for a reply that was not asked any more, because too many before it were too long."""


class SentCommand(NamedTuple):
    """Command of a flight, as it was sent. `end`: where the next one begins."""

    verb: bytes
    key: bytes
    end: int

    @property
    def limit(self) -> int:
        return _LIMITS.get(self.verb, _WINDOW)

    @property
    def is_read(self) -> bool:
        return self.verb in _READS

    @property
    def refusal(self) -> OversizedReply:
        return OversizedReply(f"the answer to {self._name} is longer than {self.limit // MIB} MiB, so it was not read")

    @property
    def not_read(self) -> UnreadReply:
        return UnreadReply(f"{self._name} was skipped, because too many earlier answers were too long")

    @property
    def _name(self) -> str:
        key = printable(decode_name(self.key[: 4 * _KEY_SHOWN]))[:_KEY_SHOWN]
        return f"{self.verb.decode('ascii', 'replace')} {key}".strip()


def commands(sent: bytes) -> Iterator[SentCommand]:
    """Yields the commands in these bytes, which this process has encoded."""
    at = 0
    while at < len(sent):
        parts, at = _number(sent, at)
        names: list[bytes] = []
        for _ in range(parts):
            size, start = _number(sent, at)
            if len(names) < 2:
                names.append(sent[start : start + size])
            at = start + size + 2
        yield SentCommand(names[0].upper(), names[1] if len(names) > 1 else b"", at)


class ReplyReader:
    """Cuts a stream into one reply for each command, and puts a refusal in place of each that is too long.

    `has_given_up`: the rest of a reply that is too long is not worth reading. Then the stream is of no use any more;
    `go_on` takes up another one, on which the commands behind it were sent anew.
    """

    def __init__(self, asked: Sequence[SentCommand], refuse: Callable[[str], Exception]) -> None:
        self._asked = asked
        self._refuse = refuse
        self._reader = hiredis.Reader(replyError=refuse)
        self._buffer = bytearray()  # begins with the reply at hand
        self._begin()
        self.found: list[Any] = []
        self._kept = 0  # bytes of the replies that were found
        self.has_given_up = False

    @property
    def is_complete(self) -> bool:
        return len(self.found) == len(self._asked)

    def feed(self, data: bytes | bytearray) -> None:
        """Takes the next bytes. Raises hiredis.ProtocolError for what is no reply."""
        self._buffer += data
        while not self.is_complete and not self.has_given_up and self._step():
            pass

    def go_on(self) -> None:
        """Continues on a stream that begins with the reply behind the one that was given up."""
        self._buffer.clear()
        self._refused()
        self.has_given_up = False

    def end(self) -> None:
        """Refuses the rest of the replies, none of which is read."""
        self.found += [one.not_read for one in self._asked[len(self.found) :]]

    def _begin(self) -> None:
        self._at = 0  # scanned up to here
        self._open = 1  # values that belong to the reply at hand and have not ended
        self._rest = 0  # bytes of a string that are still to come
        self._dropped: int | None = None  # bytes of a reply that is too long
        self._cursor: bytes | None = None

    def _step(self) -> bool:
        """Reads one value further; returns False when more bytes are needed."""
        if self._rest:
            return self._pass_string()
        end = self._buffer.find(b"\r\n", self._at)
        if end < 0:
            self._check()
            return False
        kind = self._buffer[self._at]
        if kind in _SIMPLE:
            self._open -= 1
        elif kind in _STRINGS:
            size = self._length(end)
            self._rest, self._open = (size + 2, self._open) if size >= 0 else (0, self._open - 1)
        elif kind in _ARRAYS:
            self._open += max(0, self._length(end)) - 1
        else:
            raise hiredis.ProtocolError("not a reply")
        self._at = end + 2
        self._check()
        return self._rest > 0 or self._ended()

    def _pass_string(self) -> bool:
        """Skips the bytes of a string, as far as they have come."""
        here = len(self._buffer) - self._at
        if here < self._rest:
            if self._dropped is not None:
                self._rest -= here
                self._at += here
                self._check()
            return False
        self._at += self._rest
        self._rest = 0
        self._open -= 1
        self._check()
        return self._ended()

    def _ended(self) -> bool:
        if self._open or self.has_given_up:
            return not self.has_given_up
        if self._dropped is not None:
            del self._buffer[: self._at]
            self._refused()
            return True
        self._reader.feed(bytes(self._buffer[: self._at]))
        del self._buffer[: self._at]
        self.found.append(self._reader.gets())
        self._kept += self._at
        self._begin()
        return True

    @property
    def _limit(self) -> int:
        return SHORT if self._is_full else self._asked[len(self.found)].limit

    @property
    def _is_full(self) -> bool:
        """True if no long reply is read any more, except from a script: it has done its part."""
        return self._kept > FLIGHT_LIMIT and self._asked[len(self.found)].verb not in _SCRIPTS

    def _refused(self) -> None:
        asked = self._asked[len(self.found)]
        refusal = asked.not_read if self._is_full else asked.refusal
        refusal.cursor = self._cursor
        self.found.append(refusal)
        self._begin()

    def _check(self) -> None:
        """Drops what there is of the reply at hand, if it is too long already."""
        if self._dropped is None:
            if self._at + self._rest <= self._limit:
                return
            self._dropped = 0
            if self._asked[len(self.found)].verb == b"SCAN" and (found := _CURSOR.match(self._buffer)):
                self._cursor = bytes(found[1])
        self._dropped += self._at
        del self._buffer[: self._at]
        self._at = 0
        self.has_given_up = self._dropped + self._rest > SKIPPED

    def _length(self, end: int) -> int:
        try:
            return int(self._buffer[self._at + 1 : end])
        except ValueError:
            raise hiredis.ProtocolError("not a length") from None


def _number(sent: bytes, at: int) -> tuple[int, int]:
    """Returns the number behind a sign, and where what follows begins."""
    end = sent.index(b"\r\n", at)
    return int(sent[at + 1 : end]), end + 2
