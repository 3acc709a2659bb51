"""Child processes of the tests: they die with the test run, however it ends."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from tests.support.patience import patience
from tests.support.processes import fork_server
from tests.support.processes.fork_server import ForkedProcess

_PR_SET_PDEATHSIG = 1
_GRACE_SECONDS = 5.0
# Below the kernel's ephemeral range: a port in it may be taken as somebody's source port while our server is
# down, and a client that keeps retrying such a port on loopback can connect to itself.
_PORTS = range(12_000, 32_000)

Stream = int | IO[bytes] | None


def spawn(
    command: Sequence[str | Path],
    *,
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = subprocess.DEVNULL,
    stderr: Stream = subprocess.DEVNULL,
    environ: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> subprocess.Popen[bytes]:
    """Start a child that gets SIGKILL when this thread of ours is gone. Ctrl-C does not reach it: we end it.

    A `manage.py` is forked from a process that has imported all of it.
    """
    words = [str(part) for part in command]
    own: dict[str, Any] = {"stdin": stdin, "stdout": stdout, "stderr": stderr, "env": environ, "cwd": directory}
    if fork_server.is_possible(words, directory):
        return ForkedProcess(words, fork_server.server_for(os.environ if environ is None else environ), **own)
    return subprocess.Popen(
        words,
        start_new_session=True,
        preexec_fn=_die_with(os.getpid()),  # noqa: PLW1509 (the tests start children from one thread)
        **own,
    )


def run(
    *arguments: str | Path,
    environ: Mapping[str, str] | None = None,
    stdout: Stream = subprocess.PIPE,
    stdin: Stream = subprocess.DEVNULL,
    seconds: float = 60.0,
) -> subprocess.CompletedProcess[str]:
    """What a program of ours said until it ended: `run("manage.py", "migrate", environ=…)`, `run("-c", program, …)`."""
    process = spawn(
        [sys.executable, *arguments],
        stdin=stdin,
        stdout=stdout,
        stderr=subprocess.PIPE,
        environ=environ,
        directory=fork_server.ROOT,
    )
    with process:
        try:
            said, errors = process.communicate(timeout=patience(seconds))
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(
        process.args, process.returncode, (said or b"").decode(errors="replace"), errors.decode(errors="replace")
    )


def succeed(*arguments: str | Path, **options: Any) -> str:
    """The same of a program that must end well."""
    ended = run(*arguments, **options)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def end(process: subprocess.Popen[bytes], *, seconds: float = _GRACE_SECONDS) -> None:
    """SIGTERM, and SIGKILL when that does not help; a stopped child is woken first. Leaves no zombie."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def free_port() -> int:
    """A port that nobody listens on, and that no test of this user's, in whatever process, gets for a long while."""
    while True:
        port = _next_port()
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def _next_port() -> int:
    """They go round: one chosen by chance is now and then chosen twice before its server listens."""
    with (Path(tempfile.gettempdir()) / f"unstall-test-ports-{os.getuid()}").open("a+") as last:
        fcntl.flock(last, fcntl.LOCK_EX)
        last.seek(0)
        port = int(last.read() or _PORTS.stop) + 1
        if port not in _PORTS:
            port = _PORTS.start
        last.truncate(0)
        last.write(str(port))
        last.flush()
        return port


def _die_with(parent: int) -> Callable[[], None]:
    prctl = getattr(ctypes.CDLL(None), "prctl", None)  # absent outside Linux

    def arrange() -> None:
        if prctl is not None:
            prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return arrange
