"""A private PostgreSQL server for tests: on loopback, in a temp dir, nothing synced to disk."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support.processes.processes import free_port

_DEBIAN = Path("/usr/lib/postgresql")
_SECONDS = 60


def programs() -> Path | None:
    """Where initdb and pg_ctl are; None when this machine has none."""
    found = shutil.which("initdb")
    if found:
        return Path(found).parent
    return max(_DEBIAN.glob("*/bin"), default=None) if _DEBIAN.is_dir() else None


class Postgres:
    """One server with an empty database; `url` leads to it. It refuses to run as root, so root lends it a user."""

    def __init__(self, disk: Path | None = None) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="unstall-postgres-", dir=disk))
        self._port = free_port()
        self.url = self.database("postgres")

    def __enter__(self) -> Self:
        if self._user:
            shutil.chown(self._directory, self._user)
        self._run("initdb", "-A", "trust", "-U", "unstall", "--no-sync")
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_running:
            self.stop()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def is_running(self) -> bool:
        return (self._directory / "data" / "postmaster.pid").exists()

    def database(self, name: str) -> str:
        """Where one of that name is."""
        return f"postgres://unstall@127.0.0.1:{self._port}/{name}"

    def start(self) -> None:
        options = f"-p {self._port} -k {self._directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._run("pg_ctl", "-w", "-o", options, "-l", str(self._directory / "log"), "start")

    def stop(self) -> None:
        """As a crash stops it: every connection is cut in the middle of what it does."""
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It hangs: whoever connects is accepted by the system, and nobody is answered."""
        leader = int((self._directory / "data" / "postmaster.pid").read_text().splitlines()[0])
        processes = [*psutil.Process(leader).children(recursive=True), psutil.Process(leader)]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    @property
    def _user(self) -> str | None:
        if os.geteuid() != 0:
            return None
        return next((entry.pw_name for entry in pwd.getpwall() if entry.pw_name == "postgres"), "nobody")

    def _run(self, program: str, *arguments: str) -> None:
        where = programs()
        assert where is not None
        owner: dict[str, Any] = {"user": self._user} if self._user else {}
        command = [str(where / program), "-D", str(self._directory / "data"), *arguments]
        subprocess.run(
            command, cwd=self._directory, check=True, timeout=_SECONDS, capture_output=program == "initdb", **owner
        )
