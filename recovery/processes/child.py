"""One child: a command in a process group of its own; what it says on stderr comes out line by line under its name."""

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

LEASH = Path(__file__).with_name("leash.py")
LINE_LIMIT = 8192  # bytes of one line of output: a child that writes no newline must not fill our memory
LAST_WORDS = 1.0  # seconds for what it said before its end; a child of its own may hold the pipe open for longer

Say = Callable[[str, str], None]


@dataclass(frozen=True, slots=True)
class Command:
    """What to run. `death` is the signal it gets when we die: KILL, unless it has something to save."""

    name: str
    argv: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    death: signal.Signals = signal.SIGKILL
    inherits: tuple[int, ...] = ()


class Child:
    """A running command. Start it from the main thread only: Linux ties the leash to the thread that started it."""

    def __init__(self, command: Command, say: Say) -> None:
        self.command = command
        self._process = _start(command)
        self._reader = threading.Thread(target=self._read, args=(say,), name=command.name, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ended(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def heard_out(self) -> bool:
        """It has ended, and what it said has been passed on; what a child of its own still says is not waited for."""
        if self.ended() is None:
            return False
        self._reader.join(LAST_WORDS)
        return True

    def send(self, number: signal.Signals) -> None:
        """To the whole group: what the child started itself goes with it."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return

    def stop(self, patience: float) -> bool:
        """TERM, then KILL when `patience` is over; False when it had to be killed."""
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


def leashed(argv: Sequence[str], death: signal.Signals, pipe: int) -> list[str]:
    """The command line that ties `argv` to this process; `pipe` comes from `lifeline` and must be inherited."""
    return [sys.executable, "-ISE", str(LEASH), str(os.getpid()), str(pipe), str(int(death)), *argv]


@cache
def lifeline() -> int:
    """The reading end of a pipe whose writing end only this process has, and has as long as it lives."""
    reading, _writing = os.pipe()
    return reading


def _start(command: Command) -> subprocess.Popen[bytes]:
    pipe = lifeline()
    return subprocess.Popen(  # noqa: S603 - the command is our own
        leashed(command.argv, command.death, pipe),
        env={**os.environ, **command.environ},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # what each says when all is well, the parent says once for all
        stderr=subprocess.PIPE,
        pass_fds=(pipe, *command.inherits),
        start_new_session=True,
    )
