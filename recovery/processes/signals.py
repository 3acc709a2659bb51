"""How a process learns that it should end: the first signal asks, the second one insists."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from types import FrameType

ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ending:
    """Asked for by the first SIGINT, SIGTERM or SIGHUP; a second one calls `insisted`, whatever runs just then.

    A pipe and no threading.Event: the handler runs inside the thread that waits, and must not meet its own lock.
    """

    def __init__(self, insisted: Callable[[], None]) -> None:
        self.asked = False
        self._insisted = insisted
        self._reading, self._writing = os.pipe()

    def listen(self) -> None:
        for number in ASKING:
            signal.signal(number, self._receive)

    def wait(self, seconds: float) -> bool:
        """True as soon as somebody asked; False when the time is over."""
        return bool(select.select([self._reading], [], [], seconds)[0])

    def _receive(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked:
            self._insisted()
        else:
            self.asked = True
            os.write(self._writing, b".")
