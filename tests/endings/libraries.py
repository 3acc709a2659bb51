"""The libraries whose endings are recorded, and a worker of each in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from recovery.domain.queues.types import LibraryVersion, QueueLibrary
from tests.support.processes.fleet import OF_N8N, Fleet, Worker
from tests.support.processes.fleet import Library as Fleeted
from tests.support.processes.processes import end, spawn

QUEUE = "jobs"
BASE = f"bull:{QUEUE}"
_CHECK_MS = 120_000  # the library's own recovery stays out of it
_PYTHON_WORKER = Path(__file__).parent / "python_worker.py"


@dataclass(frozen=True, slots=True)
class At:
    url: str


class Process(Protocol):
    """One worker. `close` asks it to end as SIGTERM does, and does not wait for it."""

    @property
    def pid(self) -> int: ...
    @property
    def is_running(self) -> bool: ...
    def close(self) -> None: ...
    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """One library. `start(url, name, does, lock)`: a worker whose job hangs, spins or swells."""

    name: str
    flavour: LibraryVersion
    start: Callable[[str, str, str, int], Process]
    add: Callable[[str, float], None]  # a job, that does so after seconds


class _NodeProcess:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def pid(self) -> int:
        return self._worker.pid

    @property
    def is_running(self) -> bool:
        return self._worker.driver.is_running

    def close(self) -> None:
        """What an application's handler of SIGTERM calls."""
        self._worker.close()

    def kill(self) -> None:
        self._worker.driver.kill()


class _PythonProcess:
    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self._process.kill()
        end(self._process)


def libraries(fleet: Fleet) -> Mapping[str, Recorded]:
    """BullMQ for Node without names, as it is by default, and with; its Python port; Bull 4; and the Bull that n8n 1
    runs on, with n8n's settings: it renews a lock six times in its length.
    """
    found = (
        _node(fleet, "bullmq5", "bullmq-node", QueueLibrary.BULLMQ),
        _node(fleet, "bullmq6", "bullmq-node-named", QueueLibrary.BULLMQ, is_named=True),
        Recorded(
            "bullmq-python",
            LibraryVersion(QueueLibrary.BULLMQ, 5, version("bullmq")),
            _start_python,
            _adder(fleet["bullmq5"]),
        ),
        _node(fleet, "bull4", "bull4", QueueLibrary.BULL),
        _node(fleet, OF_N8N, "n8n", QueueLibrary.BULL, renewals=6),
    )
    return {one.name: one for one in found}


def _node(
    fleet: Fleet, generation: str, name: str, library: QueueLibrary, *, is_named: bool = False, renewals: int = 2
) -> Recorded:
    """`renewals` of a lock in its length: only Bull has that as a setting of its own."""
    own = fleet[generation]

    def start(url: str, worker: str, does: str, lock: int) -> Process:
        options: dict[str, Any] = {"lockDuration": lock, "stalledInterval": _CHECK_MS}
        options |= {"lockRenewTime": lock // renewals} if own.is_bull else {}
        options |= {"name": worker} if is_named else {}
        return _NodeProcess(own.queue(At(url), QUEUE).work(does, apart=True, **options))

    return Recorded(name, LibraryVersion(library, own.major, own.version), start, _adder(own))


def _start_python(url: str, worker: str, does: str, lock: int) -> Process:
    options = json.dumps({"lockDuration": lock, "stalledInterval": _CHECK_MS})
    return _PythonProcess(spawn([sys.executable, _PYTHON_WORKER, url, QUEUE, worker, does, options]))


def _adder(library: Fleeted) -> Callable[[str, float], None]:
    def add(url: str, after: float) -> None:
        library.queue(At(url), QUEUE).add("job", {"after": after})

    return add
