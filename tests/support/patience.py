"""How long a promise about time may take on this machine, which runs other tests beside it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

# With twice as much to run as there are cores each process gets half a core, and so on. Beyond this factor the
# machine is not busy but broken, and a number says nothing any more.
_MOST = 6.0
# The load is a minute's average, and other tests come in bursts.
_BURST = 1.5


def patience(seconds: float) -> float:
    """The promised seconds and half as many; with more to do than there are cores, as many times longer."""
    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    return seconds * min(max(1.0, busy) * _BURST, _MOST)


@contextmanager
def promptly(seconds: float, what: str = "") -> Iterator[None]:
    """What stands in it takes no longer than this."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took <= patience(seconds), f"{what or 'it'} took {took:.2f} s of {patience(seconds):.2f} s"
