"""Follows the output of a command: reads its lines without blocking, and starts it again when it ends."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import IO

from recovery.processes.child import parent_pipe, tied_to_parent

PIECE = 64 * 1024  # bytes: what a pipe holds
TURN = 4  # pieces of one read
LONGEST = 1 << 20  # bytes of a line; a longer one is left out
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds until it is started again
WELL = 60.0  # seconds: a process that ran this long is restarted after the shortest pause
_ENDING = 2.0  # seconds that it gets to end
_COMPLAINT = 500  # bytes

Say = Callable[[str], None]


class SubprocessTail:
    """Child process whose output is followed. It is killed when the monitor dies, however that happens."""

    def __init__(self, say: Say) -> None:
        self.is_behind = False  # there may be more to read at once
        self._say = say
        self._said: set[str] = set()
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._is_too_long = False
        self._started_at = self._start_at = 0.0
        self._pause = FIRST_PAUSE

    def read(self, now: float, command: Callable[[], Sequence[str]]) -> list[bytes]:
        """Returns the next complete lines; `command` is called when the process has to be started."""
        if self._process is None:
            if now >= self._start_at:
                self._start(command(), now)
            return []
        assert self._process.stdout is not None  # noqa: S101 - we asked for pipes
        assert self._process.stderr is not None  # noqa: S101 - as above
        lines: list[bytes] = []
        self.is_behind = True
        for _ in range(TURN):
            piece = _piece(self._process.stdout)
            if not piece:
                self.is_behind = False
                break
            lines += self._split(piece)
        self._listen(self._process.stderr)
        if not self.is_behind and piece == b"":
            self._ended(now)
        return lines

    def stop(self) -> None:
        """Stops the process; unread output is dropped. It may be started again at once."""
        process, self._process, self._rest, self._is_too_long = self._process, None, b"", False
        self.is_behind, self._start_at = False, 0.0
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()

    def _start(self, command: Sequence[str], now: float) -> None:
        """Starts the process from the reading thread: the kernel kills it when that thread ends."""
        pipe = parent_pipe()
        self._process = subprocess.Popen(  # noqa: S603 - a command of ours
            tied_to_parent(command, signal.SIGKILL, pipe),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(pipe,),
            bufsize=0,
        )
        self._started_at = now
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None  # noqa: S101 - as above
            os.set_blocking(stream.fileno(), False)

    def _split(self, piece: bytes) -> list[bytes]:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if lines and self._is_too_long:
            del lines[0]
            self._is_too_long = False
            self._complain(f"a line of {LONGEST} bytes or more is skipped")
        if len(self._rest) > LONGEST:
            self._rest, self._is_too_long = b"", True
        return lines

    def _listen(self, stream: IO[bytes]) -> None:
        """Reads stderr, as a full pipe would block the process, and reports its first line."""
        if complaint := _piece(stream):
            self._complain(complaint[:_COMPLAINT].decode("utf-8", "replace").strip().splitlines()[0])

    def _complain(self, said: str) -> None:
        if said and said not in self._said:
            self._said = {*list(self._said)[:10], said}
            self._say(f"journalctl: {said.removeprefix('journalctl: ')}")

    def _ended(self, now: float) -> None:
        self.stop()
        self._pause = FIRST_PAUSE if now - self._started_at > WELL else min(self._pause * 2, LONGEST_PAUSE)
        self._start_at = now + self._pause


def _piece(stream: IO[bytes]) -> bytes | None:
    """Reads a piece; empty when the process has ended, None when there is nothing yet."""
    try:
        return os.read(stream.fileno(), PIECE)
    except BlockingIOError:
        return None
