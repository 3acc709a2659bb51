"""A foreign client of the same store, in a process of its own: what everybody else feels meanwhile.

`python -m bench.foreign PORT` sends PING after PING until SIGTERM, and then prints what each took, in microseconds.
A script of more than five seconds makes the store refuse with BUSY: then it is asked again until it answers.
"""

from __future__ import annotations

import itertools
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from bench.measure import percentile
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT
from tests.support.stores.stores import Store

EVERY_US = 1000
_PING, _PONG = b"PING\r\n", b"+PONG\r\n"
_LINE = 1024
_ANSWER_SECONDS = 60.0


@dataclass(slots=True)
class Felt:
    """Milliseconds of each PING. Filled when the measured stretch is over."""

    times_ms: list[float] = field(default_factory=list)
    refused: int = 0  # with BUSY

    def at(self, share: float) -> float:
        return percentile(self.times_ms, share)

    @property
    def note(self) -> str:
        told = f"p50 {self.at(0.5):.2f} ms, p99 {self.at(0.99):.2f} ms, max {max(self.times_ms):,.1f} ms"
        return f"{told}; {self.refused:,} answers were BUSY" if self.refused else told


@contextmanager
def foreign(store: Store) -> Iterator[Felt]:
    """Meanwhile somebody else asks the store for a PONG every millisecond."""
    felt = Felt()
    client = spawn([sys.executable, "-m", "bench.foreign", str(store.port)], directory=ROOT, stdout=subprocess.PIPE)
    try:
        assert client.stdout is not None
        assert client.stdout.readline() == b"ready\n"
        yield felt
        client.send_signal(signal.SIGTERM)
        told = json.loads(client.stdout.read())
        felt.times_ms, felt.refused = [us / 1000 for us in told["times"]], told["refused"]
    finally:
        end(client)


def as_asked(took: int) -> list[int]:
    """One slow answer hides the questions that would have been asked meanwhile: each of them waited as well."""
    return list(range(took, 0, -EVERY_US))


def main() -> None:
    times: list[int] = []
    refused = 0
    going = [True]
    signal.signal(signal.SIGTERM, lambda *_: going.clear())
    with socket.create_connection(("127.0.0.1", int(sys.argv[1])), _ANSWER_SECONDS) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        print("ready", flush=True)
        while going:
            started = time.perf_counter_ns()
            refused += _ping(line)
            times += as_asked(max(1, (time.perf_counter_ns() - started) // 1000))
            time.sleep(EVERY_US / 1_000_000)
    print(json.dumps({"times": times, "refused": refused}))


def _ping(line: socket.socket) -> int:
    """Until it is answered; how often it was refused before."""
    for refused in itertools.count():
        line.sendall(_PING)
        if line.recv(_LINE) == _PONG:
            return refused
        time.sleep(EVERY_US / 1_000_000)
    raise AssertionError("it is asked for ever")


if __name__ == "__main__":
    main()
