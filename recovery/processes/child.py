"""Runs a child process: a command in its own process group, whose stderr is passed on line by line under its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

LEASH = Path(__file__).with_name("parent_death.py")
LINE_LIMIT = 8192  # bytes of one line of output: a child that writes no newline must not fill our memory
LAST_WORDS = 1.0  # seconds to read the rest of its output; a grandchild may hold the pipe open for longer

Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class ChildCommand:
    """Command to run. `death` is the signal it gets when its parent dies: KILL, unless it has something to save."""

    name: str
    argv: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    death: signal.Signals = signal.SIGKILL
    inherits: tuple[int, ...] = ()


class Child:
    """A running command. Start it from the main thread only: Linux sends the death signal when that thread ends."""

    def __init__(self, command: ChildCommand, say: Say) -> None:
        self.command = command
        self._process = _start(command)
        self._reader = threading.Thread(target=self._read, args=(say,), name=command.name, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """Returns the exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def heard_out(self) -> bool:
        """Returns True once it has ended and its output was passed on; does not wait for output of grandchildren."""
        if self.ended() is None:
            return False
        self._reader.join(LAST_WORDS)
        return True

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to the whole process group, with the processes that the child started itself."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def stop(self, patience: float) -> bool:
        """Sends TERM, and KILL after `patience` seconds; returns False if it had to be killed."""
        self.send(signal.SIGTERM)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return False
        else:
            return True
        finally:
            self.send(signal.SIGKILL)
            self._process.wait()
            self._reader.join(LAST_WORDS)

    def _read(self, say: Say) -> None:
        stream = self._process.stderr
        assert stream is not None  # noqa: S101 - we asked for a pipe
        with stream:
            while line := stream.readline(LINE_LIMIT):
                say(self.command.name, line.decode("utf-8", "replace").rstrip())


def tied_to_parent(argv: Sequence[str], death: signal.Signals, pipe: int) -> list[str]:
    """Returns the command line that ends `argv` with this process; `pipe` is from `lifeline` and must be inherited."""
    return [sys.executable, "-ISE", str(LEASH), str(os.getpid()), str(pipe), str(int(death)), *argv]


@cache
def parent_pipe() -> int:
    """Returns the reading end of a pipe whose writing end only this process has, for as long as it lives."""
    reading, _writing = os.pipe()
    return reading


def _start(command: ChildCommand) -> subprocess.Popen[bytes]:
    pipe = parent_pipe()
    return subprocess.Popen(  # noqa: S603 - the command is our own
        tied_to_parent(command.argv, command.death, pipe),
        env={**os.environ, **command.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the parent reports success once for all
        stderr=subprocess.PIPE,
        pass_fds=(pipe, *command.inherits),
        start_new_session=True,
    )
