"""Deadline for anything that is sent out: what hangs is cut off, and delays nothing but itself."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from recovery.errors import NotDelivered

log = logging.getLogger(__name__)


class CancellableSockets:
    """Connections of one attempt, so that they can be cut from outside."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[socket.socket] = []
        self._is_cut = False

    def hold(self, connected: socket.socket) -> None:
        """Keeps a duplicate of the socket: a wrapper in TLS takes the first one away."""
        twin = connected.dup()
        with self._lock:
            self._held.append(twin)
            if self._is_cut:
                _shut(twin)

    def cut(self) -> None:
        """Shuts the connections down: a thread that reads or writes there gets an error at once."""
        with self._lock:
            self._is_cut = True
            for one in self._held:
                _shut(one)

    def close(self) -> None:
        with self._lock:
            for one in self._held:
                one.close()
            self._held.clear()


class _Attempt(threading.Thread):
    """Daemon thread of one attempt: looking up a name cannot be cut off, and must keep no process alive."""

    def __init__(self, work: Callable[[CancellableSockets], str]) -> None:
        super().__init__(name="message", daemon=True)
        self._work = work
        self.lifeline = CancellableSockets()
        self.said = ""
        self.error: Exception | None = None

    def run(self) -> None:
        try:
            self.said = self._work(self.lifeline)
        except Exception as error:  # noqa: BLE001 -- it is the caller's, who waits for it
            self.error = error
        finally:
            self.lifeline.close()


def run_within(seconds: float, work: Callable[[CancellableSockets], str]) -> str:
    """Returns what `work` returns. Raises NotDelivered, also when it has not ended by then or failed otherwise."""
    attempt = _Attempt(work)
    attempt.start()
    attempt.join(seconds)
    if attempt.is_alive():
        attempt.lifeline.cut()
        raise NotDelivered(timeout_reason(seconds), may_have=True)
    if isinstance(attempt.error, NotDelivered):
        raise attempt.error
    if attempt.error is not None:
        log.error("a message cannot be sent", exc_info=attempt.error)
        raise NotDelivered(f"It cannot be sent ({type(attempt.error).__name__}).", may_have=True)
    return attempt.said


def timeout_reason(seconds: float) -> str:
    return f"It has not answered within {seconds:g} s."


def _shut(one: socket.socket) -> None:
    with suppress(OSError):  # it is gone already
        one.shutdown(socket.SHUT_RDWR)
