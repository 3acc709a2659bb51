"""What a measurement stands on: private stores, queues of the real library, idle clients, our processes, bull-board.

Everything is on 127.0.0.1 and dies with this process.
"""

from __future__ import annotations

import base64
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from recovery.reads import snapshots
from tests.driver import node
from tests.processes import end, spawn
from tests.stores import Store
from tests.waiting import until
from tests.web_process import ROOT, WebProcess, environ_of

NODE_HOME = Path(__file__).with_name("node")
PREFIX = "bull"
SEED_SECONDS = 300.0


class NoPeer(RuntimeError):
    """bull-board is not installed; the text says how to."""


def raise_file_limit() -> None:
    """A thousand clients are a thousand open files here, and as many in the store we start."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def queues(count: int, *, full: int, jobs: int) -> Iterator[Store]:
    """A store with `count` queues made by the real BullMQ, the first `full` of them with `jobs` jobs each."""
    with Store("valkey") as store:
        _node("seed.mjs", store.url, count, full, jobs)
        yield store


@contextmanager
def idle_clients(store: Store, count: int, queues: int) -> Iterator[None]:
    """Connections named as BullMQ names its workers, that do nothing."""
    with ExitStack() as stack:
        for number in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", store.port)))
            name = base64.b64encode(f"bench-{number % queues}".encode()).decode()
            client.sendall(b"CLIENT SETNAME %s:%s\r\n" % (PREFIX.encode(), name.encode()))
            assert client.recv(64) == b"+OK\r\n"
        yield


@contextmanager
def board(store: Store, count: int) -> Iterator[str]:
    """bull-board over the first `count` queues; its address."""
    process = spawn([_node_program(), "board.mjs", store.url, str(count)], directory=NODE_HOME, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        yield f"http://127.0.0.1:{port}"
    finally:
        end(process)


@contextmanager
def house(store: Store, count: int, *, limits: Mapping[str, object] | None = None) -> Iterator[WebProcess]:
    """Our web process and scheduler over a store's queues, with a state store of their own, showing all of them."""
    with Store("valkey") as state, ExitStack() as stack:
        environ = {"UNSTALL_REDIS_URL": store.url, "UNSTALL_STATE_URL": state.url}
        web = stack.enter_context(WebProcess(environ, limits))
        scheduler = spawn(
            [sys.executable, "manage.py", "scheduler"],
            environ=environ_of(web.directory, environ),
            directory=ROOT,
        )
        stack.callback(end, scheduler)
        until(lambda: _shown(state) == count, 120, "all queues are found")
        until(lambda: web.get("/readyz").status == 200, 10, "the web process shows them")
        yield web


def _shown(state: Store) -> int:
    snapshot = snapshots.fetch(state.client)
    return len(snapshot.queues) if snapshot else 0


def _node(script: str, *arguments: object) -> None:
    command: list[str | Path] = [_node_program(), script, *map(str, arguments)]
    subprocess.run(command, cwd=NODE_HOME, check=True, capture_output=True, timeout=SEED_SECONDS)


def _node_program() -> Path:
    """Node, when it and bull-board are there. Raises NoPeer."""
    program = node()
    if program is None or not (NODE_HOME / "node_modules" / "@bull-board").is_dir():
        raise NoPeer("bull-board is not installed. Run: make bench")
    return program
