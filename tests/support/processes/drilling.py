"""Fire drills for tests: real workers of a real library, with times so short that a round takes a few seconds."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import psutil

from recovery.config import current
from recovery.domain.drills.plan import PREFIX, DrillLibrary, DrillPlan, arguments
from recovery.drills import location, runtimes
from recovery.drills import runner as drills_runner
from recovery.drills.runner import DrillEvent, DrillReport
from tests.support.processes.driver import NODE_DIRECTORY
from tests.support.stores.stores import Store

# Long enough that a round's order can be told on a busy machine.
SHORT = DrillPlan(lock=600, renew=300, stalled_interval=600, job=60_000, wait=100, timeout=20_000)
SHORT_WORDS = arguments(SHORT)  # the same in the shell


def package(name: str) -> str:
    """Where the fleet has this generation of a library."""
    return str(NODE_DIRECTORY / "node_modules" / name)


def plan_for(name: str, **changes: object) -> DrillPlan:
    """`name`: a generation of the fleet, or `python`."""
    library = (
        DrillLibrary.PYTHON
        if name == "python"
        else DrillLibrary.BULLMQ
        if name.startswith("bullmq")
        else DrillLibrary.BULL
    )
    return replace(SHORT, library=library, **changes)  # type: ignore[arg-type]


class Watch:
    """Holds the watch over one drill; `stop_at`: what has to happen for somebody to stop it."""

    def __init__(self, stop_at: str = "") -> None:
        self.events: list[DrillEvent] = []
        self.workers: set[int] = set()
        self._stop_at = stop_at
        self._pause = threading.Event()

    def run(self, plan: DrillPlan, name: str, on: str = "") -> DrillReport:
        program = runtimes.find(plan.library, "" if name == "python" else package(name))
        where = location.deployment_of_drill(current(), on)
        return drills_runner.run(plan, program, where, on, rest=self.rest, tell=self.events.append)

    def rest(self, seconds: float) -> None:
        self.workers |= {child.pid for child in psutil.Process().children() if _is_worker(child)}
        if self._stop_at and any(event.what == self._stop_at for event in self.events):
            raise KeyboardInterrupt
        self._pause.wait(seconds)

    @property
    def happened(self) -> list[str]:
        return [event.what for event in self.events]


def left(store: Store) -> list[bytes]:
    """Keys of drills that are still there."""
    return list(store.client.scan_iter(match=f"{PREFIX}:*", count=1000))


def alive(pids: set[int]) -> set[int]:
    return {pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE}


def workers_of(pid: int) -> set[int]:
    """Worker processes that hang on this process."""
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True) if _is_worker(child)}
    except psutil.NoSuchProcess:
        return set()


def _is_worker(process: psutil.Process) -> bool:
    try:
        folder = str(Path("recovery") / "drill")
        return any(folder in word and word.endswith(("worker.mjs", "worker.py")) for word in process.cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied):
        return False
