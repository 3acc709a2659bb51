"""Keeps a set of child processes running, and stops them in order.

A child that ends is started again after 1, 2, 4 … 30 s; one that stayed up for a minute starts from 1 s again.
One that reports a wrong call (status 2) is not: the same call would end the same way.
Everything happens in the caller's thread, which must be the main one.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recovery.processes.child import Child, ChildCommand, Say

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 30.0
STEADY_AFTER = 60.0  # seconds up, after which an exit begins a new series of restarts
WRONG_CALL = 2  # the status of a process that cannot work as it was configured
PATIENCE = 10.0  # seconds between TERM and KILL: what every process needs at most


@dataclass(slots=True)
class _Place:
    """Supervised child: the running process, or the time of the next start."""

    command: ChildCommand
    child: Child | None
    started_at: float
    pause: float = FIRST_PAUSE
    start_at: float = 0.0


class ChildMisconfigured(Exception):
    """Raised if a child cannot work as configured; it has written why, and the text is its name."""


class Supervisor:
    def __init__(self, say: Say, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._places: list[_Place] = []

    def start(self, command: ChildCommand) -> Child:
        child = Child(command, self._say)
        self._places.append(_Place(command, child, self._clock()))
        return child

    @property
    def pids(self) -> dict[str, int]:
        return {place.command.name: place.child.pid for place in self._places if place.child}

    def tend(self) -> None:
        """Checks every child: records those that ended, starts those that are due."""
        now = self._clock()
        for place in self._places:
            if place.child is not None:
                self._note_end(place, place.child, now)
            elif now >= place.start_at:
                place.child, place.started_at = Child(place.command, self._say), now

    def stop(self, order: Sequence[str]) -> None:
        """Stops the named children, one after the other; others are left for a later call."""
        for name in order:
            for place in [place for place in self._places if place.command.name == name]:
                self._places.remove(place)
                if place.child and not place.child.stop(PATIENCE):
                    self._say(name, f"did not end within {PATIENCE:g} s and was killed")

    def kill(self) -> None:
        """Kills all children at once, without waiting: this may run inside a signal handler."""
        for place in self._places:
            if place.child:
                place.child.send(signal.SIGKILL)

    def _note_end(self, place: _Place, child: Child, now: float) -> None:
        status = child.ended()
        if status is None:
            return
        if status == WRONG_CALL:
            raise ChildMisconfigured(place.command.name)
        if now - place.started_at >= STEADY_AFTER:
            place.pause = FIRST_PAUSE
        child.stop(0)  # what it may have left in its group
        place.child, place.start_at = None, now + place.pause
        self._say(place.command.name, f"{_ended(status)}; starting it again in {place.pause:g} s")
        place.pause = min(place.pause * 2, LONGEST_PAUSE)


def _ended(status: int) -> str:
    return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
