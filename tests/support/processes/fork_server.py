"""Starts our Python processes by forking one that has imported what they need: a new interpreter takes a second for it.

    server = server_for(environ)                # imports Django and all of the product, once
    process = ForkedProcess(["python", "manage.py", "web"], server, env=environ, cwd=ROOT, stdout=log, …)

Such a process is a `subprocess.Popen` like any other: a child of ours, with its own environment, directory, streams and
session. It reads Django's settings anew, so it is as if it had just started; only /proc shows the server's command line
and environment. Where a child cannot be forked this way (`is_possible`), an ordinary process does the same.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine())
_CLONE_PARENT = 0x8000  # the child gets the server's parent, which can wait for it
_PR_SET_PDEATHSIG = 1
# What an interpreter reads once, at its start.
_AT_START = ("PYTHON", "GLIBC_", "MALLOC_", "LD_", "LC_", "LANG", "OPENSSL_", "SSL_")
_SIZE = 8  # bytes of a number on the wire
_EVERYTHING = (
    "dashboard.urls",
    "dashboard.management.commands.web",
    "recovery.management.commands.migrate",
    "recovery.management.commands.monitor",
    "recovery.management.commands.scheduler",
    "uvicorn.lifespan.on",
    "uvicorn.loops.asyncio",
    "uvicorn.protocols.http.h11_impl",
)


def is_possible(command: list[str], directory: Path | None) -> bool:
    """A command of manage.py. Other programs may change a module before others import it, so they start anew."""
    is_ours = command[0] == sys.executable and command[1] in ("manage.py", str(ROOT / "manage.py"))
    return sys.platform == "linux" and _CLONE is not None and is_ours and directory == ROOT


def server_for(environ: Mapping[str, str]) -> ForkServer:
    """The server of this process whose interpreter is as one would be that starts with this environment."""
    return _server(tuple(sorted((name, value) for name, value in environ.items() if name.startswith(_AT_START))))


@cache
def _server(environ: tuple[tuple[str, str], ...]) -> ForkServer:
    return ForkServer(dict(environ))


class ForkServer:
    """A process that forks. It ends with us."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        self._ours, its = socket.socketpair()
        with its, tempfile.TemporaryDirectory() as directory:
            own = {"UNSTALL_DATA_DIR": directory, "UNSTALL_SECRET_KEY": "k" * 50, "PATH": os.environ.get("PATH", "")}
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__)), str(its.fileno()), str(os.getpid())],
                env={**environ, **own},
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self._number()  # it has imported everything

    def fork(self, order: Mapping[str, Any], streams: list[int]) -> int:
        """The pid of a new child of ours that runs this command with these streams."""
        body = json.dumps(order).encode()
        with self._lock:
            socket.send_fds(self._ours, [len(body).to_bytes(_SIZE, "big")], streams)
            self._ours.sendall(body)
            return self._number()

    def _number(self) -> int:
        answer = self._ours.recv(_SIZE, socket.MSG_WAITALL)
        if len(answer) < _SIZE:
            raise AssertionError(f"The fork server ended: {self._process.wait()}")
        return int.from_bytes(answer, "big")


class ForkedProcess(subprocess.Popen[bytes]):
    def __init__(self, command: list[str], server: ForkServer, **options: Any) -> None:
        self._server = server
        super().__init__(command, **options)

    def _execute_child(self, command: list[str], *more: Any) -> None:
        """In place of fork and exec. `more`: as Popen lists them, the six ends of pipes before its last seven."""
        environ, directory, pipes = more[5], more[4], more[9:15]
        streams = [given if given >= 0 else usual for usual, given in enumerate((pipes[0], pipes[3], pipes[5]))]
        order = {"environ": dict(os.environ if environ is None else environ), "directory": str(directory or Path.cwd())}
        try:
            self.pid = self._server.fork({**order, "arguments": command[1:]}, streams)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


# -- in the server


def serve(place: socket.socket, parent: int) -> dict[str, Any]:
    """Forks as often as it is asked to. Returns in each child what it shall do."""
    _end_with(parent)
    sys.path[0] = str(ROOT)  # in place of this file's directory
    _import_everything()
    place.sendall(bytes(_SIZE))
    while True:
        head, streams, _, _ = socket.recv_fds(place, _SIZE, 3)
        if not head:
            os._exit(0)
        order: dict[str, Any] = json.loads(place.recv(int.from_bytes(head, "big"), socket.MSG_WAITALL))
        pid = _fork_sibling()
        if pid == 0:
            place.close()
            _end_with(parent)
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
        for stream in streams:
            os.close(stream)
        if pid == 0:
            return order
        place.sendall(pid.to_bytes(_SIZE, "big"))


def run(order: dict[str, Any]) -> None:
    """Does what a new interpreter with these arguments would do."""
    from django.conf import empty, settings
    from django.db import connections

    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["directory"])
    sys.modules.pop("dashboard.settings")
    settings._wrapped = empty  # read anew, from this environment; so are the databases
    vars(connections).pop("settings", None)
    type(connections).__init__(connections)
    sys.argv = order["arguments"]
    sys.orig_argv = [sys.executable, *sys.argv]
    runpy.run_path(sys.argv[0], run_name="__main__")


def _import_everything() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "dashboard.settings"
    import django

    django.setup()
    for name in _EVERYTHING:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is never written to stays shared


def _fork_sibling() -> int:
    """A fork whose child belongs to our parent."""
    assert _CLONE is not None
    python, libc = ctypes.pythonapi, ctypes.PyDLL(None)
    python.PyOS_BeforeFork()
    pid = int(libc.syscall(_CLONE, ctypes.c_long(_CLONE_PARENT | signal.SIGCHLD), 0, 0, 0, 0))
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError("A child cannot be forked")
    return pid


def _end_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)


if __name__ == "__main__":
    run(serve(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])))
