"""Runs all processes of `manage.py up`: Valkey for the state, web, scheduler, monitor, the demo if no queue is set.

Start: 1. lock the data directory, 2. Valkey, 3. what the caller prepares (migrations), 4. the processes,
5. wait until the web process answers. Stop: the processes in their order, Valkey last, so that all of them can save.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from glob import escape
from pathlib import Path

from recovery.processes import up_environment
from recovery.processes.child import ChildCommand, Say
from recovery.processes.directory_lock import lock_directory
from recovery.processes.embedded_valkey import NAME as VALKEY
from recovery.processes.embedded_valkey import QUEUES_DB, STATE_DB, EmbeddedValkey
from recovery.processes.listen_address import ListenAddress
from recovery.processes.signals import StopRequest
from recovery.processes.supervisor import Supervisor

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
        self._supervisor.stop((*ORDER, VALKEY))
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
