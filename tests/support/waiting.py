"""Wait by condition with a deadline, never by sleep."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from tests.support.patience import patience

T = TypeVar("T")
_LEAST, _MOST = 0.02, 0.1  # seconds between two looks
_SHARE = 20  # of the time waited so far: who waits for long need not look so often, and leaves the processor to others


def until(condition: Callable[[], T], seconds: float = 10.0, what: str = "") -> T:
    """The first truthy value of `condition`; AssertionError when the deadline passes, later on a busy machine."""
    started = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - started
        if waited > patience(seconds):
            raise AssertionError(f"not within {seconds:g} s: {what or condition!r}; last seen: {value!r}")
        _rest(min(max(_LEAST, waited / _SHARE), _MOST))


def _rest(seconds: float) -> None:
    """Between two looks at a condition of another process, which nobody announces: the only sleep there is."""
    time.sleep(seconds)
