"""Real scheduler processes for tests, each with its log at hand, over one database that is migrated."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from tests.processes import end, spawn
from tests.waiting import until
from tests.web_process import ROOT, environ_of

STARTS_WITHIN = 60.0  # seconds; on two cores that others use too
DATABASE = "unstall.sqlite3"

# `manage.py scheduler`, with constants changed before it starts, perhaps as if on a machine of its own.
_SCHEDULER = """
import json, sys, django
django.setup()
from recovery.scheduler import alive, holder, lease, office
changed, place = json.loads(sys.argv[1]), sys.argv[2]
for name, value in changed.items():
    module = alive if name == "LIFE" else lease
    getattr(module, name)
    setattr(module, name, value)
if place:
    holder._place = lambda: place
from recovery.config import current
from recovery.scheduler.run import run
run(current())
"""


def script(constants: str = "{}", place: str = "") -> tuple[str, ...]:
    """Arguments for a Process. `constants`: JSON of those in lease.py, and of LIFE in alive.py. `place`: the machine it
    believes to be on.
    """
    return "-c", _SCHEDULER, constants, place


class Process:
    """One scheduler. `directory` has the database; several may share it."""

    def __init__(self, directory: Path, name: str, arguments: tuple[str, ...], environ: Mapping[str, str]) -> None:
        self.path = directory / f"{name}.log"
        own = environ_of(directory, {"DJANGO_SETTINGS_MODULE": "dashboard.settings", "UNSTALL_LOG_LEVEL": "info"})
        with self.path.open("wb") as log:
            command = [sys.executable, *arguments]
            self.child = spawn(command, stderr=log, stdout=log, environ={**own, **environ}, directory=ROOT)

    @property
    def pid(self) -> int:
        return self.child.pid

    @property
    def log(self) -> str:
        return self.path.read_text(errors="replace")

    def says(self, words: str, seconds: float = STARTS_WITHIN) -> None:
        until(lambda: words in self.log or self.child.poll() is not None, seconds, words)
        assert words in self.log, self.log

    def send(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def ask(self) -> None:
        self.send(signal.SIGTERM)

    def status(self) -> int:
        return self.child.wait(20)

    def end(self) -> None:
        end(self.child)


def migrate(directory: Path, environ: Mapping[str, str] | None = None) -> None:
    command = [sys.executable, "manage.py", "migrate", "--verbosity=0"]
    subprocess.run(command, cwd=ROOT, env=environ_of(directory, environ), check=True, timeout=60)


def furnish(directory: Path) -> None:
    """A migrated SQLite in this data directory."""
    shutil.copy(_migrated() / DATABASE, directory / DATABASE)


@cache
def _migrated() -> Path:
    """Made once a test run."""
    directory = Path(tempfile.mkdtemp(prefix="unstall-migrated-"))
    migrate(directory)
    return directory
