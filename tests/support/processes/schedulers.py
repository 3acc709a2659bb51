"""Real scheduler processes for tests, each with its log at hand, over one database that is migrated."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import psutil

from tests.support.processes.processes import end, spawn, succeed
from tests.support.processes.web_process import ROOT, environ_of
from tests.support.waiting import until

STARTS_WITHIN = 60.0  # seconds; on two cores that others use too
DATABASE = "unstall.sqlite3"

# `manage.py scheduler`, with constants changed before it starts, perhaps as if on a machine of its own.
_SCHEDULER = """
import json, sys, django
django.setup()
from recovery.scheduler import heartbeat, lease_holder, lease
changed, place = json.loads(sys.argv[1]), sys.argv[2]
for name, value in changed.items():
    module = heartbeat if name == "LIFE" else lease
    getattr(module, name)
    setattr(module, name, value)
if place:
    lease_holder._place = lambda: place
from recovery.config import current
from recovery.scheduler.process import run
run(current())
"""


# In the child every clock that may be set, as Python reads it, is as far off as a file says.
_CLOCK_OFF = """
import datetime, os, time
_file, _wall, _datetime = os.open(os.environ["CLOCK_OFF"], os.O_RDONLY), time.time, datetime.datetime

def _off():
    return float(os.pread(_file, 20, 0) or 0)

class _Kind(type(_datetime)):
    def __instancecheck__(self, one):
        return isinstance(one, _datetime)

class _Shifted(_datetime, metaclass=_Kind):
    @classmethod
    def now(cls, tz=None):
        return _datetime.now(tz) + datetime.timedelta(seconds=_off())

time.time = lambda: _wall() + _off()
datetime.datetime = _Shifted
"""


class WallClock:
    """The wall clock of a scheduler's host, which may jump. A process started with `script` and `environ` reads it."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "clock-off"
        self.environ = {"CLOCK_OFF": str(self._file)}
        self.jump(0)

    def jump(self, seconds: int) -> None:
        """So far from the right time, also for a process that runs: it has the file open."""
        self._file.write_text(f"{seconds:<20}")

    def script(self) -> tuple[str, ...]:
        """Arguments for a Process."""
        flag, code, *rest = script()
        return flag, _CLOCK_OFF + code, *rest


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

    def stop(self) -> None:
        """It stands still, with all its threads, until it is sent SIGCONT."""
        self.send(signal.SIGSTOP)
        until(lambda: psutil.Process(self.pid).status() == psutil.STATUS_STOPPED, STARTS_WITHIN, "it is stopped")

    def status(self) -> int:
        return self.child.wait(20)

    def end(self) -> None:
        end(self.child)


def migrate(directory: Path, environ: Mapping[str, str] | None = None) -> None:
    succeed("manage.py", "migrate", "--verbosity=0", environ=environ_of(directory, environ))


def furnish(directory: Path) -> None:
    """A migrated SQLite in this data directory."""
    shutil.copy(_migrated() / DATABASE, directory / DATABASE)


@cache
def _migrated() -> Path:
    """Made once a test run."""
    directory = Path(tempfile.mkdtemp(prefix="unstall-migrated-"))
    migrate(directory)
    return directory
