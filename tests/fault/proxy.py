"""A TCP proxy on loopback that plays a bad network: refuses, cuts, delays, holds back, swallows, answers nonsense."""

from __future__ import annotations

import contextlib
import select
import socket
import struct
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Self

_TICK = 0.02
_NO_LINGER = struct.pack("ii", 1, 0)  # close() sends a reset instead of a farewell


@dataclass(slots=True)
class Held:
    """A connection whose answer stays on the way. `come`: the first of it; `is_left`: whoever asked has hung up."""

    come: bytes = b""
    is_left: bool = False
    freed: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """Forwards to one port until told otherwise; every fault takes effect at once, for open connections too."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = _listening(0)
        self.port: int = self._listener.getsockname()[1]
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._silent = False
        self._delay = 0.0
        self._allowance: int | None = None
        self._mark = b""
        self._held: dict[socket.socket, Held] = {}
        self.accepted = 0

    def __enter__(self) -> Self:
        self._begin(self._accept, self._listener)
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.let_go()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def refuse(self) -> None:
        """Nobody listens any more, and who was connected is cut off."""
        self._listener.shutdown(socket.SHUT_RDWR)  # at once, though another thread waits on it
        self._listener.close()
        self.cut()

    def restore(self) -> None:
        """As good as new, on the same port."""
        self._silent, self._delay, self._allowance = False, 0.0, None
        if self._listener.fileno() == -1:
            self._listener = _listening(self.port)
            self._begin(self._accept, self._listener)

    def lead(self, port: int) -> None:
        """To another server from the next connection on; those that are open are cut."""
        self._to = port
        self.cut()

    def cut(self) -> None:
        """Reset every connection, as a firewall does that lost its table."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for end in pair:
                _reset(end)

    def silence(self) -> None:
        """Half-open: connections stay, new ones are accepted, and nothing ever comes back."""
        self._silent = True

    def cut_after(self, size: int) -> None:
        """Reset a connection in the middle of an answer: once so many bytes of it have come through."""
        self._allowance = size

    def delay(self, seconds: float) -> None:
        """Each answer comes that much later, as from a server far away: several may be on the way at once."""
        self._delay = seconds

    def hold(self, mark: bytes) -> None:
        """Answers to requests in which this stands stay on the way, though the server has sent them: see `held`."""
        self._mark = mark

    @property
    def held(self) -> list[Held]:
        return list(self._held.values())

    def let_go(self) -> None:
        """What was held goes on its way, to those who still wait for it."""
        self._mark = b""
        for held in self.held:
            held.freed.set()

    def _accept(self, listener: socket.socket) -> None:
        while not self._ended.is_set():
            try:
                if not select.select([listener], [], [], _TICK)[0]:
                    continue
                near, _ = listener.accept()
            except (OSError, ValueError):  # closed meanwhile
                return
            self.accepted += 1
            self._join(near)

    def _join(self, near: socket.socket) -> None:
        far = None
        with contextlib.suppress(OSError):
            far = socket.create_connection(("127.0.0.1", self._to), timeout=5)
        if far is None:  # nobody there: as a port that is forwarded to nowhere
            _reset(near)
            return
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._pairs.append((near, far))
        self._begin(self._pump, near, far, False)
        self._begin(self._pump, far, near, True)

    def _pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        late: deque[tuple[float, bytes]] = deque()  # answers on their way, and when each arrives
        with contextlib.suppress(OSError, ValueError):
            while not self._ended.is_set():
                if not select.select([source], [], [], _arrive(late, sink))[0]:
                    continue
                if is_answer and (held := self._held.get(source)):
                    _keep(held, source)
                piece = source.recv(65536)
                if self._silent:
                    continue
                if not is_answer:
                    self._watch(piece, sink)
                if is_answer and piece and (self._delay or late):
                    late.append((time.monotonic() + self._delay, piece))
                    continue
                if not piece:
                    break
                if is_answer and self._allowance is not None and len(piece) > self._allowance:
                    sink.sendall(piece[: self._allowance])
                    _reset(sink)
                    break
                sink.sendall(piece)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.close()

    def _watch(self, piece: bytes, server: socket.socket) -> None:
        """What is asked, and that nobody waits for an answer any more."""
        if self._mark and self._mark in piece:
            self._held[server] = Held()
        elif not piece and server in self._held:
            self._held[server].is_left = True

    def _begin(self, work: object, *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def _arrive(late: deque[tuple[float, bytes]], sink: socket.socket) -> float:
    """Hands over what has been on its way for long enough; seconds until the next of it."""
    while late and late[0][0] <= time.monotonic():
        sink.sendall(late.popleft()[1])
    return min(_TICK, max(0.0, late[0][0] - time.monotonic())) if late else _TICK


def _keep(held: Held, server: socket.socket) -> None:
    """It stays in the kernel's hands meanwhile, also when the server has ended the connection."""
    while not held.freed.wait(_TICK):
        with contextlib.suppress(BlockingIOError):
            held.come = server.recv(1 << 20, socket.MSG_PEEK | socket.MSG_DONTWAIT)


def _listening(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(64)
    return listener


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        end.shutdown(socket.SHUT_RDWR)
        end.close()
