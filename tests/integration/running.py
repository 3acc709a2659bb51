"""`manage.py up` as a person starts it: in a directory of its own, on a free port, its output at hand."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx
import psutil

from tests.support.processes.processes import free_port, run, spawn
from tests.support.stores.keys import SECRET_KEY
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]
STARTS_WITHIN = 40.0  # two on a machine that does nothing else
LINK = re.compile(r"http://\S+")


class Up:
    """One running `up`. What it starts has the data directory in its environment or, as Valkey, in its command line."""

    def __init__(self, directory: Path, environ: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.port = free_port()
        self.lines: list[str] = []
        self._environ = {**_clean(), **self._own(), **(environ or {})}
        self.process = spawn(
            [sys.executable, "manage.py", "up"],
            directory=ROOT,
            environ=self._environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _own(self) -> dict[str, str]:
        config = self.directory / "unstall.toml"  # empty, and so not the developer's either
        config.touch()
        collected = self.directory / "static"  # empty: whoever runs the tests may not have collected
        collected.mkdir(exist_ok=True)
        return {
            "UNSTALL_DATA_DIR": str(self.directory),
            "UNSTALL_SECRET_KEY": SECRET_KEY,
            "UNSTALL_BIND": f"127.0.0.1:{self.port}",
            "UNSTALL_CONFIG": str(config),
            "UNSTALL_STATIC_DIR": str(collected),
        }

    @property
    def said(self) -> str:
        return "\n".join(self.lines)

    @property
    def link(self) -> str:
        found = LINK.search(self.said)
        return found.group() if found else ""

    def ready(self) -> str:
        """The one URL that it prints."""
        until(lambda: self.link or self.process.poll() is not None, STARTS_WITHIN, "the link")
        assert self.link, self.said
        return self.link

    def visit(self) -> httpx.Client:
        return httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=10, follow_redirects=True)

    def shell(self, *arguments: str, environ: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Another command of the same person, in the same directory. In a new terminal it has `environ` alone."""
        own = self._environ if environ is None else {**_clean(), **self._own(), **environ}
        return run("manage.py", *arguments, environ=own)

    def others(self) -> list[psutil.Process]:
        """Every process but `up` itself that lives from this data directory."""
        return [found for found in psutil.process_iter() if found.pid != self.process.pid and self._is_ours(found)]

    def end(self, number: signal.Signals = signal.SIGINT, *, seconds: float = 30.0) -> int:
        self.process.send_signal(number)
        return self.wait(seconds)

    def wait(self, seconds: float = 30.0) -> int:
        status = self.process.wait(seconds)
        self._reader.join(5)
        return status

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        for found in self.others():
            _kill(found)
        self.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _is_ours(self, found: psutil.Process) -> bool:
        place = str(self.directory)
        try:
            if found.status() == psutil.STATUS_ZOMBIE:
                return False
            return found.environ().get("UNSTALL_DATA_DIR") == place or place in " ".join(found.cmdline())
        except psutil.Error:
            return False

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line.decode(errors="replace").rstrip())


def _clean() -> dict[str, str]:
    """Nothing of the tests' own settings, so that the defaults are what is tested."""
    foreign = ("UNSTALL_", "DATABASE_URL", "DJANGO_", "COVERAGE", "PYTEST")
    return {name: value for name, value in os.environ.items() if not name.startswith(foreign)}


def _kill(found: psutil.Process) -> None:
    try:
        found.kill()
    except psutil.NoSuchProcess:
        return
