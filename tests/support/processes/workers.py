"""A process that is a worker to the monitor: a word of its command is in no other, and it starts what it is told."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from tests.support.processes.processes import end, spawn
from tests.support.waiting import until

_LIFE = "300"  # seconds that a child lives at most, should nobody end it
_PATIENCE = 30.0  # seconds
_SCRIPT = """
import os, signal, socket, subprocess, sys
if len(sys.argv) > 1:
    signal.alarm(int(sys.argv[1]))
    signal.pause()
kept = []
folder = os.open('.', os.O_RDONLY | os.O_DIRECTORY)
for line in sys.stdin:
    what, *words = line.split()
    if what == 'bear':
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, pass_fds=[folder])
        print(child.pid, flush=True)
    elif what == 'leave':
        starter = subprocess.Popen(
            ['sh', '-c', '"$@" > /dev/null & echo $!', 'sh', *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        print(starter.communicate()[0].decode().strip(), flush=True)
    elif what == 'detach':
        child = subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True)
        print(child.pid, flush=True)
    elif what == 'call':
        kept.append(socket.create_connection((words[0], int(words[1]))))
        print(kept[-1].getsockname()[1], flush=True)
    elif what == 'burn':
        print(0, flush=True)
        while True:
            pass
"""


class Worker:
    def __init__(self, folder: Path, *, starter: Sequence[str] = ()) -> None:
        self.pattern = f"jobs-{token_hex(4)}"
        self.file = folder / f"{self.pattern}.open"  # what its children have open
        self.file.touch()
        self._script = folder / f"{self.pattern}.py"
        self._script.write_text(_SCRIPT)
        self._children: list[int] = []
        own = [sys.executable, str(self._script)]
        self._process = spawn([*starter, *own], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._is_started = bool(starter)

    @property
    def pid(self) -> int:
        """Of the worker itself, also when another program started it."""
        if not self._is_started:
            return self._process.pid
        return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])

    def bear(self) -> int:
        """A child, and one of its own that holds a file."""
        return self._born("bear", "timeout", _LIFE, "tail", "-f", str(self.file))

    def leave(self) -> int:
        """A child's child, whose parent is gone at once."""
        return self._born("leave", "timeout", _LIFE, "tail", "-f", str(self.file))

    def detach(self) -> int:
        """A worker of its own, let go on purpose."""
        return self._born("detach", sys.executable, str(self._script), _LIFE)

    def call(self, port: int) -> int:
        """Connects, and tells its own port."""
        return self._ask("call", "127.0.0.1", str(port))

    def burn(self) -> None:
        self._ask("burn")

    def kill(self) -> None:
        """Until it is dead. If we are its parent, it is a zombie then: nobody has taken note of its end."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not _is_alive(pid), _PATIENCE)

    def close(self) -> None:
        for child in self._children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
        if self._is_started:
            with suppress(OSError, IndexError):
                self.kill()
        end(self._process)

    def _born(self, *words: str) -> int:
        self._children.append(self._ask(*words))
        return self._children[-1]

    def _ask(self, *words: str) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{' '.join(words)}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def working(folder: Path, *, starter: Sequence[str] = ()) -> Iterator[Worker]:
    """`starter`: what starts it, with its command behind."""
    worker = Worker(folder, starter=starter)
    try:
        yield worker
    finally:
        worker.close()
