"""Handles signals to stop: the first one asks the process to end, the second one ends it at once."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopRequest:
    """Stop request, made by the first SIGINT, SIGTERM or SIGHUP; a second one calls `insisted` at once.

    A pipe and no threading.Event: the handler runs inside the thread that waits, and must not meet its own lock.
    """

    def __init__(self, insisted: Callable[[], None]) -> None:
        self.asked = False
        self._insisted = insisted
        self._reading, self._writing = os.pipe()

    def listen(self) -> None:
        for number in STOP_SIGNALS:
            signal.signal(number, self._receive)

    def wait(self, seconds: float) -> bool:
        """Waits; returns True as soon as a signal asks to stop, False when the time is over."""
        return bool(select.select([self._reading], [], [], seconds)[0])

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            self._insisted()
        else:
            self.asked = True
            os.write(self._writing, b".")
