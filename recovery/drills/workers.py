"""Starts the worker processes of a drill, each in a process group that ends with us, and collects their events."""

from __future__ import annotations

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any

from recovery.domain.drills.plan import PREFIX, DrillPlan
from recovery.domain.identifiers import printable
from recovery.drills.runtimes import WorkerRuntime
from recovery.errors import UnstallError
from recovery.processes.child import Child, ChildCommand

PAUSE = 0.02  # seconds between two reads of events
START = 30.0  # seconds for a worker to be ready; a slow disk imports slowly
LINES = 20  # of a process' other output, kept to explain why it ended
WORDS = 300  # characters of it that are shown

_SETTINGS = {
    "lockDuration": "lock",
    "lockRenewTime": "renew",
    "stalledInterval": "stalled_interval",
    "maxStalledCount": "max_stalled",
    "concurrency": "concurrency",
}


class DrillWorkerNotStarted(UnstallError):
    """A worker did not start, or ended by itself; the text is its last output."""


@dataclass(frozen=True, slots=True)
class DrillWorkerEvent:
    """An event of a worker process, with the time when it arrived (seconds of the monotonic clock)."""

    at: float
    who: str
    event: str
    job: str = ""
    text: str = ""
    version: str = ""
    connection: int | None = None


@dataclass(frozen=True, slots=True)
class DrillWorker:
    """A running worker. `connection` None: it could not find out its own client id."""

    name: str
    child: Child
    version: str = ""
    connection: int | None = None


class DrillWorkers:
    """Worker processes of one drill. To be called from the main thread only: on Linux the processes end with the thread
    that started them.
    """

    def __init__(self, plan: DrillPlan, program: WorkerRuntime, connection: dict[str, Any], queue: str) -> None:
        self._plan = plan
        self._program = program
        self._connection = connection
        self._queue = queue
        self._heard: SimpleQueue[DrillWorkerEvent] = SimpleQueue()
        self._aside: deque[DrillWorkerEvent] = deque()  # events that came while another one was waited for
        self._noise: dict[str, deque[str]] = {}
        self._count = 0
        self.hands: dict[str, DrillWorker] = {}

    def fill(self, rest: Callable[[float], None]) -> None:
        """Starts workers up to the planned number and waits until all are ready. Raises NotStarted, and whatever `rest`
        raises.
        """
        missing = self._plan.workers - len(self.hands)
        started = [self._start("work") for _ in range(missing)]
        for child in started:
            self.hands[child.command.name] = DrillWorker(child.command.name, child)
        for child in started:
            told = self._wait(child, "ready", rest)
            hand = self.hands[child.command.name]
            self.hands[hand.name] = replace(hand, version=told.version, connection=told.connection)

    def add(self, rest: Callable[[float], None]) -> str:
        """Adds a job with the library itself, and returns its id."""
        child = self._start("add")
        try:
            return self._wait(child, "added", rest).job
        finally:
            child.stop(1.0)

    def told(self) -> Iterator[DrillWorkerEvent]:
        """Yields the events since the last call, oldest first."""
        while self._aside:
            yield self._aside.popleft()
        while True:
            try:
                yield self._heard.get_nowait()
            except Empty:
                return

    def finish(self, name: str) -> None:
        """Tells this worker to finish its job now."""
        self.hands[name].child.send(signal.SIGUSR2)

    def dismiss(self, name: str) -> None:
        """Removes a worker that is dead or has ended, and kills what is left of its process group."""
        self.hands.pop(name).child.stop(0)

    def close(self) -> None:
        """Kills all workers at once: nothing of theirs has to be saved."""
        for hand in self.hands.values():
            hand.child.send(signal.SIGKILL)
        for name in list(self.hands):
            self.dismiss(name)

    def last_words(self, name: str) -> str:
        return printable(" ".join(self._noise.get(name, ())))[-WORDS:]

    def _start(self, role: str) -> Child:
        self._count += 1
        name = f"{role}-{self._count}"
        self._noise[name] = deque(maxlen=LINES)
        order = {
            "role": role,
            "worker": name,
            "library": self._program.library.value,
            "package": self._program.package,
            "prefix": PREFIX,
            "queue": self._queue,
            "connection": self._connection,
            "options": {name: getattr(self._plan, field) for name, field in _SETTINGS.items()},
            "job": self._plan.job,
            "shutdown": self._plan.shutdown,
        }
        return Child(ChildCommand(name, self._program.argv, {"DRILL_ORDER": json.dumps(order)}), self._hear)

    def _wait(self, child: Child, event: str, rest: Callable[[float], None]) -> DrillWorkerEvent:
        """Waits for an event of this process. Events of others are kept: a worker may begin a job before its adder
        reports it.
        """
        others: list[DrillWorkerEvent] = []
        ends = time.monotonic() + START
        try:
            while time.monotonic() < ends:
                has_ended = child.heard_out()  # asked before events are read: its last ones are among them
                for told in self.told():
                    if told.who == child.command.name and told.event == event:
                        return told
                    others.append(told)
                if has_ended:
                    break
                rest(PAUSE)
        finally:
            self._aside.extend(others)
        child.stop(0)
        words = self.last_words(child.command.name) or "It printed nothing."
        raise DrillWorkerNotStarted(f"{self._program.library.label} {self._program.version} did not start: {words}")

    def _hear(self, name: str, line: str) -> None:
        """Takes in a line of output, called by the thread that reads this process."""
        told = _told(time.monotonic(), name, line)
        if told is None or told.event == "error":
            self._noise[name].append(told.text if told else line[:WORDS])
        if told is not None:
            self._heard.put(told)


def _told(at: float, who: str, line: str) -> DrillWorkerEvent | None:
    """Parses an event; None for any other output."""
    try:
        said = json.loads(line)
        number = said.get("connection")
        texts = {name: str(said.get(name, "")) for name in ("event", "job", "text", "version")}
        return DrillWorkerEvent(at, who, **texts, connection=int(number) if number is not None else None)
    except (ValueError, TypeError, AttributeError):
        return None
