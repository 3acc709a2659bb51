"""A private MariaDB server for tests: on loopback, in a temp dir, nothing synced to disk."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.support.processes.processes import free_port
from tests.support.waiting import until

_SECONDS = 60


def programs() -> tuple[str, str] | None:
    """The server and what makes its first files; None when this machine has none."""
    server = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin")
    install = shutil.which("mariadb-install-db")
    return (server, install) if server and install else None


class MariaDb:
    """One server with an empty database; `url` leads to it."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="unstall-mariadb-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.url = f"mysql://unstall:pass%20word@127.0.0.1:{self._port}/app"

    def __enter__(self) -> Self:
        if self._user:
            shutil.chown(self._directory, self._user)
        found = programs()
        assert found is not None
        command = [found[1], *self._own, "--auth-root-authentication-method=normal", "--skip-test-db"]
        made = subprocess.run(
            command,
            check=False,
            timeout=_SECONDS,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self._directory,
            **self._as,
        )
        assert made.returncode == 0, made.stdout.decode(errors="replace")[-2000:]
        self._setup().write_text(
            "CREATE DATABASE app CHARACTER SET utf8mb4;\n"
            "CREATE USER 'unstall'@'127.0.0.1' IDENTIFIED BY 'pass word';\n"
            "GRANT ALL ON app.* TO 'unstall'@'127.0.0.1';\n"
        )
        self.start(f"--init-file={self._setup()}")
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    def start(self, *options: str) -> None:
        found = programs()
        assert found is not None
        pid = self._directory / "pid"
        pid.unlink(missing_ok=True)
        command = [
            *(found[0], *self._own, f"--port={self._port}", "--bind-address=127.0.0.1", f"--pid-file={pid}"),
            *(f"--socket={self.socket}", "--innodb-flush-log-at-trx-commit=0", "--skip-name-resolve"),
            *("--innodb-buffer-pool-size=32M", "--skip-log-bin", "--performance-schema=off", *options),
        ]
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self._directory, **self._as)
        # Its pid file is written when it takes connections, after the file with the first statements was read.
        until(lambda: pid.exists() or self._has_ended(), _SECONDS, "MariaDB starts")
        assert not self._has_ended(), (self._directory / "log").read_text()[-2000:]

    def stop(self) -> None:
        """As a crash stops it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_SECONDS)
            self._process = None

    @property
    def socket(self) -> str:
        """Where root comes in without a password."""
        return str(self._directory / "socket")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def _setup(self) -> Path:
        return self._directory / "setup.sql"

    @property
    def _own(self) -> tuple[str, ...]:
        """A server that starts removes all temporary tables of its tmpdir, those of other servers too."""
        return "--no-defaults", f"--datadir={self._directory / 'data'}", f"--tmpdir={self._directory}"

    @property
    def _user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        return next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name == "mysql"), "nobody")

    @property
    def _as(self) -> dict[str, Any]:
        return {"user": self._user} if self._user else {}
