"""Shipping of log lines for tests: driven by hand or as the real monitor, and what arrived in the store."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from recovery.domain.identifiers import encode_name
from recovery.domain.logs import line_batches
from recovery.domain.logs.line_batches import CutLine
from recovery.monitor.shipping import settings, shipping_thread
from recovery.monitor.store_clock import StoreClock
from recovery.shared_clock import steady
from recovery.stores.state import state_keys
from tests.support.processes.processes import end, spawn
from tests.support.stores.stores import Store

ROOT = Path(__file__).parents[3]
SERVER = "worker-1"
STEP = 2.0  # seconds from one turn to the next: each looks for new files


@dataclass(frozen=True)
class Arrived:
    """One line as it lies in the store."""

    text: bytes
    at: int
    labels: Mapping[str, str]
    left_out: int = 0


class Driven:
    """Shipping without its thread, at a time of our own."""

    def __init__(self, store: Store, *files: Path | str, now: float | None = None, **chosen: str) -> None:
        named = {f"UNSTALL_LOG_{name.upper()}": value for name, value in chosen.items()}
        environ = {"UNSTALL_STATE_URL": store.url, "UNSTALL_LOG_FILES": ",".join(map(str, files)), **named}
        self.said: list[str] = []
        self.now = steady() if now is None else now
        times = StoreClock(0, self.now)
        self.shipper = shipping_thread.make_shipper(settings.read(environ), SERVER, environ, times, self.said.append)

    def turn(self, count: int = 3, *, after: float = STEP) -> float:
        """So many turns; what the last one asks to wait. Three do for a file that is new, renamed or emptied."""
        wait = 0.0
        for _ in range(count):
            self.now += after
            wait = self.shipper.turn(self.now)
            while wait == 0.0:
                wait = self.shipper.turn(self.now)
        return wait

    def die(self) -> None:
        """As SIGKILL ends it: nothing is said to anybody."""
        self.shipper.close()


def arrived(store: Store, server: str = SERVER) -> list[Arrived]:
    """All lines, in the order of their entries."""
    found = []
    for _, fields in cast("Any", store.client.xrange(state_keys.logs(server))):
        labels = json.loads(fields[b"labels"])
        lines = list(line_batches.unpack_lines(fields[b"body"]))
        assert len(lines) == int(fields[b"count"])
        assert (min(at for at, _ in lines), max(at for at, _ in lines)) == (int(fields[b"first"]), int(fields[b"last"]))
        for at, line in lines:
            found.append(Arrived(bytes(line), at, labels, line.left_out if isinstance(line, CutLine) else 0))
    return found


def texts(store: Store) -> list[str]:
    return [line.text.decode() for line in arrived(store)]


def offsets(store: Store, server: str = SERVER) -> dict[bytes, bytes]:
    return cast("dict[bytes, bytes]", store.client.hgetall(state_keys.log_offsets(server)))


def append(path: Path, *lines: str | bytes) -> None:
    with path.open("ab") as file:
        file.write(b"".join(encode_name(line) + b"\n" if isinstance(line, str) else line for line in lines))


@contextmanager
def monitor(store: Store, *files: Path | str, **chosen: str) -> Iterator[subprocess.Popen[bytes]]:
    """The real one, as a process."""
    process = started(store, *files, **chosen)
    try:
        yield process
    finally:
        end(process)


def started(store: Store, *files: Path | str, **chosen: str) -> subprocess.Popen[bytes]:
    environ = {
        "PATH": os.environ["PATH"],
        "UNSTALL_STATE_URL": store.url,
        "UNSTALL_SERVER_ID": SERVER,
        "UNSTALL_WORKER_PATTERNS": "",
        "UNSTALL_LOG_FILES": ",".join(map(str, files)),
        **{f"UNSTALL_LOG_{name.upper()}": value for name, value in chosen.items()},
    }
    command: Sequence[str] = [sys.executable, "-m", "recovery.monitor"]
    return spawn(command, directory=ROOT, environ=environ, stderr=subprocess.PIPE)
