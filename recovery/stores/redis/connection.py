"""A connection to one server: connects, logs in, sends bytes, and lets hiredis parse what comes back.

We connect ourselves and not through redis-py, because every step stands under one deadline: resolving the name,
connecting, TLS, the login, the first answer. A server that accepts and stays silent costs that long and no more.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import hiredis
import redis

from recovery.config import ServerAddress, StoreLogin
from recovery.errors import (
    AccessDenied,
    Garbled,
    OversizedAnswer,
    StoreError,
    TimedOut,
    TlsMismatch,
    Unreachable,
)
from recovery.stores.redis import redis_errors, reply_limits, sockets
from recovery.stores.redis.pipeline import Command, CommandChunk, chunked
from recovery.stores.redis.reply_limits import MIB, ReplyReader

RECEIVE = 128 * 1024  # bytes a receive: a chunk of small replies fits, and hiredis copies it once
PACE = 1024 * 1024  # bytes that earn another `timeout`: a big answer may take longer, a dripping one may not
RECEIVED_LIMIT = 256 * 1024 * 1024  # bytes a flight, with what is dropped: beyond that nothing good comes any more
# Seconds in which a flight may begin anew, each time because of one reply that is too long. What is asked behind those
# is not read any more: the server copies every such reply in full before it sends the first byte.
REOPENING = 1.0
GLANCE = 0.001  # seconds to read what has come already, when the time is up before this process looked
CHUNK_SECONDS = 0.001  # what a chunk of small reads costs both sides: a longer way is filled with more of them
FLIGHT_LIMIT = 16  # chunks: the server keeps the replies to them in its memory until they are read
_NOTHING = CommandChunk(b"", 0)
_OTHER = {False: "it does not speak TLS here", True: "it speaks TLS here"}  # by: did we speak plainly?


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """Options to open a connection: the same for all servers of a deployment."""

    login: StoreLogin
    database: int
    context: ssl.SSLContext | None
    timeout: float
    connect: float
    needs_master: bool = False
    doubts_silence: bool = True  # after silence, look whether the server speaks the other protocol


class RedisConnection:
    """Connection to one server, for one thread at a time: the pool sees to that. Close it after any exception."""

    __slots__ = (
        "_buffer",
        "_deadline",
        "_flight",
        "_posted",
        "_posted_at",
        "_reader",
        "_refused",
        "_reopen",
        "_round_trip",
        "_socket",
        "_timeout",
        "target",
    )

    def __init__(
        self, connected: socket.socket, target: str, timeout: float, reopen: Callable[[], RedisConnection] | None = None
    ) -> None:
        self._socket = connected
        self._reopen = reopen
        self._posted = _NOTHING
        self._timeout = timeout
        self._deadline = 0.0
        self._posted_at = 0.0
        self._round_trip = timeout  # seconds on the way, by the quickest flight so far
        self._flight = 1  # chunks in the flight that is under way
        self._buffer = bytearray(RECEIVE)
        self._refused = False
        self._reader = hiredis.Reader(replyError=self._refuse)
        self.target = target

    @classmethod
    def open(cls, address: ServerAddress, terms: ConnectionOptions, target: str) -> RedisConnection:
        """Connects, logs in, and waits for one answer; raises StoreError."""
        deadline = time.monotonic() + terms.connect
        plain = sockets.dial(address, target, deadline, terms.connect)
        try:
            connected = sockets.secure(plain, address, terms.context, deadline) if terms.context else plain
        except OSError as error:
            plain.close()
            raise _diagnosed(error, address, terms, target) from error
        line = cls(connected, target, terms.timeout, partial(cls.open, address, terms, target))
        try:
            line._greet(terms, deadline)
        except BaseException as error:
            line.close()
            if isinstance(error, StoreError) and _is_other_protocol(error, address, terms):
                raise TlsMismatch(target, _OTHER[terms.context is None]) from error
            raise
        return line

    def _greet(self, terms: ConnectionOptions, deadline: float) -> None:
        commands = _greeting(terms)
        posted_at = time.monotonic()
        self._introduce(commands, deadline)
        replies = self._replies(deadline)
        self._round_trip = time.monotonic() - posted_at
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, redis.ResponseError):
                _judge_greeting(command, reply, self.target)
            elif command[0] == "ROLE" and reply[0] != b"master":
                raise Unreachable(self.target, "it is no longer the master")

    def _introduce(self, commands: list[Command], deadline: float) -> None:
        """Sends the greeting. With TLS 1.3 the server judges our certificate afterwards: its refusal is read here."""
        try:
            self._send(chunked(commands)[0], deadline)
        except Unreachable:
            self._replies(deadline)
            raise

    def exchange(self, chunks: Iterable[CommandChunk]) -> list[Any]:
        """Returns every reply in order; the next flight is sent when the last one is answered."""
        return list(chain.from_iterable(self.parts(chunks)))

    def parts(self, chunks: Iterable[CommandChunk]) -> Iterator[list[Any]]:
        """Yields the replies flight by flight: while the caller looks at one, the server works on the next.

        A flight is one chunk where the server is near, and as many as fill a longer way.
        """
        following = iter(chunks)
        flight = self._take_off(following)
        while flight:
            replies = self.collect()
            flight = self._take_off(following)
            yield replies
            self._wait_from_now()  # the caller's time is not the server's

    def _take_off(self, following: Iterator[CommandChunk]) -> bool:
        chunks = tuple(islice(following, max(1, min(FLIGHT_LIMIT, round(self._round_trip / CHUNK_SECONDS)))))
        if chunks:
            self.post(*chunks)
        return bool(chunks)

    def post(self, *chunks: CommandChunk) -> None:
        self._flight = len(chunks)
        self._wait_from_now()
        self._posted_at = time.monotonic()
        self._send(CommandChunk.joined(chunks) if len(chunks) > 1 else chunks[0], self._deadline)

    def _wait_from_now(self) -> None:
        self._deadline = time.monotonic() + self._timeout * self._flight

    def collect(self) -> list[Any]:
        """Returns the replies to the last `post`; raises StoreError when one of them condemns the whole store."""
        replies = self._replies(self._deadline)
        took = time.monotonic() - self._posted_at
        self._round_trip = min(self._round_trip, max(0.0, took - self._flight * CHUNK_SECONDS))
        if self._refused:
            self._refused = False
            for reply in replies:
                fault = isinstance(reply, redis.ResponseError) and redis_errors.store_wide(reply, self.target)
                if fault:
                    raise fault
        return replies

    def _send(self, chunk: CommandChunk, deadline: float) -> None:
        # A list's header before the replies: hiredis then collects them all in C and hands out one list.
        self._reader.feed(b"*%d\r\n" % chunk.replies)
        self._posted = chunk
        self._transmit(chunk.sent, deadline)

    def _transmit(self, sent: bytes, deadline: float) -> None:
        try:
            self._socket.settimeout(_left(deadline))
            self._socket.sendall(sent)
        except OSError as error:
            raise redis_errors.from_system(error, self.target, limit=self._timeout) from error

    def _replies(self, deadline: float) -> list[Any]:
        """Returns a reply for each command. Unless a string or the flight is long, hiredis makes them all in one go."""
        incoming = _Incoming(deadline, self._timeout)
        pieces: list[bytearray] = []
        try:
            while (replies := self._reader.gets()) is False:
                if self._reader.len() > reply_limits.EASY_STRING or incoming.received > reply_limits.EASY_FLIGHT:
                    return self._measured(pieces, incoming)
                size = self._receive(incoming)
                self._reader.feed(self._buffer, 0, size)  # type: ignore[arg-type] # any buffer will do
                pieces.append(self._buffer[:size])
        except OSError as error:
            raise redis_errors.from_system(error, self.target, limit=self._timeout) from error
        except hiredis.ProtocolError as error:
            raise Garbled(self.target, "the answer is not in the Redis protocol") from error
        self._posted = _NOTHING
        found: list[Any] = replies
        return found

    def _measured(self, pieces: list[bytearray], incoming: _Incoming) -> list[Any]:
        """Returns the same reply by reply, from what has come and is still to come: none exceeds its limit."""
        self._reader = hiredis.Reader(replyError=self._refuse)
        asked = list(reply_limits.commands(self._posted.sent))
        replies = ReplyReader(asked, self._refuse)
        for piece in _taken(pieces):
            replies.feed(piece)
        until: float | None = None
        while not replies.is_complete:
            if replies.has_given_up:
                until = until or time.monotonic() + REOPENING
                self._start_over(asked, replies, incoming, is_last=time.monotonic() > until)
                continue
            size = self._receive(incoming)
            replies.feed(self._buffer[:size])
        self._posted = _NOTHING
        return replies.found

    def _start_over(
        self, asked: list[reply_limits.SentCommand], replies: ReplyReader, incoming: _Incoming, *, is_last: bool
    ) -> None:
        """Asks the commands behind this one again on a new connection: what it answers is too long to be read.

        `is_last`: they are not asked any more. Raises OversizedAnswer where asking again may do something twice.
        """
        at = len(replies.found)
        culprit, rest = asked[at], asked[at + 1 :]
        if self._reopen is None or not all(one.is_read for one in rest):
            raise OversizedAnswer(self.target, str(culprit.refusal), command=culprit.verb.decode("ascii", "replace"))
        self._socket.close()
        self._socket = self._reopen()._socket
        replies.go_on()
        incoming.begin_anew()
        if is_last:
            replies.end()
        elif rest:
            self._transmit(self._posted.sent[culprit.end :], incoming.deadline)

    def _receive(self, incoming: _Incoming) -> int:
        """Receives the next bytes into the buffer; raises OSError and StoreError."""
        left = incoming.left()
        self._socket.settimeout(left if self._flight == 1 else min(left, self._timeout))
        size = self._socket.recv_into(self._buffer)
        if not size:
            raise Unreachable(self.target, "it closed the connection")
        incoming.received += size
        if incoming.received > RECEIVED_LIMIT:
            raise Garbled(self.target, f"more than {RECEIVED_LIMIT // MIB} MiB in one answer")
        return size

    def _refuse(self, message: str) -> redis.ResponseError:
        self._refused = True
        return redis_errors.refusal(message)

    def is_usable(self) -> bool:
        """Returns True if it is open and silent. Costs a microsecond, and spares the next call a dead connection."""
        return not sockets.has_unread_data(self._socket)

    def close(self) -> None:
        self._socket.close()


class _Incoming:
    """Size of what has come of a flight, and the time until which the rest has to."""

    __slots__ = ("_timeout", "_was_late", "deadline", "received")

    def __init__(self, deadline: float, timeout: float) -> None:
        self.deadline = deadline
        self.received = 0
        self._timeout = timeout
        self._was_late = False

    def left(self) -> float:
        """Returns the seconds left; raises TimeoutError."""
        left = self.deadline + self.received / PACE * self._timeout - time.monotonic()
        if left > 0:
            return left
        # It may have come while this process stood still: a script that ran would pass for a lost one.
        if self._was_late:
            raise TimeoutError
        self._was_late = True
        return GLANCE

    def begin_anew(self) -> None:
        """Extends the deadline, as the rest was asked again."""
        self.deadline = max(self.deadline, time.monotonic() + self._timeout)


def _taken(pieces: list[bytearray]) -> Iterator[bytearray]:
    """Yields each piece once, in order, without keeping it meanwhile."""
    pieces.reverse()
    while pieces:
        yield pieces.pop()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _greeting(terms: ConnectionOptions) -> list[Command]:
    """Returns AUTH when there is a login, SELECT when it is not number 0, and a PING that makes any server speak."""
    commands: list[Command] = []
    if terms.login:
        names = (terms.login.username,) if terms.login.username else ()
        commands.append(("AUTH", *names, terms.login.password))
    if terms.database:
        commands.append(("SELECT", terms.database))
    commands.append(("PING",))
    if terms.needs_master:
        commands.append(("ROLE",))
    return commands


def _judge_greeting(command: Command, refused: redis.ResponseError, target: str) -> None:
    """Raises StoreError, unless an ACL merely refuses PING or ROLE: no read needs those."""
    fault = redis_errors.store_wide(refused, target)
    if fault:
        raise fault
    word, rest = str(command[0]), command[-1]
    if word == "AUTH":
        raise AccessDenied(target, f"the login was refused: {refused}", command=word)
    denied = refused.status_code == "NOPERM"
    if word == "SELECT":
        if denied:
            raise AccessDenied(target, f"the user may not choose database {rest!r}", command=word)
        raise StoreError(target, f"there is no database {rest!r}: {refused}", command=word)
    if not denied:
        raise StoreError(target, str(refused), command=word)


def _diagnosed(error: OSError, address: ServerAddress, terms: ConnectionOptions, target: str) -> StoreError:
    fault = redis_errors.from_system(error, target, limit=terms.connect)
    return TlsMismatch(target, _OTHER[False]) if _is_other_protocol(fault, address, terms) else fault


def _is_other_protocol(fault: StoreError, address: ServerAddress, terms: ConnectionOptions) -> bool:
    """Returns True if, after a hang-up or noise, the server talks the other way: with TLS, or without it.

    Silence is doubted only under TLS: a plain server waits for the end of a line that our hello may lack, while
    one that speaks TLS hangs up on plain words at once.
    """
    if isinstance(fault, TimedOut) and not (terms.context and terms.doubts_silence):
        return False
    if not isinstance(fault, Unreachable | Garbled | TimedOut):
        return False
    return sockets.speaks_plain(address) if terms.context else sockets.speaks_tls(address)
