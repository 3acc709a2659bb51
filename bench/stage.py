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
from tests.fleet import Queue
from tests.processes import end, spawn
from tests.stores import Store
from tests.waiting import until
from tests.web_process import ROOT, WebProcess, environ_of

NODE_HOME = Path(__file__).with_name("node")
PREFIX = "bull"
SEED_SECONDS = 300.0
URGENT = 5  # the priority of a job that has one
ADDED = 1_000  # jobs that the library adds at once
FILL = 5_000  # jobs a script of the stage's own

# What a worker leaves that took so many jobs and died: all of them active and marked by the library's check, no lock.
_ORPHAN = """
for _ = 1, ARGV[1] do
  local id = redis.call('RPOPLPUSH', KEYS[1] .. ':wait', KEYS[1] .. ':active')
  redis.call('HSET', KEYS[1] .. ':' .. id, 'processedOn', 1760000000000 + id, 'ats', 1)
  redis.call('SADD', KEYS[1] .. ':stalled', id)
end
"""
# What a worker leaves that failed all there was, urgent ones too.
_FAIL = """
for _ = 1, ARGV[1] do
  local id = redis.call('RPOP', KEYS[1] .. ':wait') or redis.call('ZPOPMIN', KEYS[1] .. ':prioritized')[1]
  local at = 1760000000000 + id
  redis.call('HSET', KEYS[1] .. ':' .. id, 'processedOn', at, 'finishedOn', at + 9, 'ats', 1, 'atm', 1,
    'failedReason', 'ECONNREFUSED 10.0.0.7:25', 'stacktrace', '["Error: ECONNREFUSED\\\\n  at x"]')
  redis.call('ZADD', KEYS[1] .. ':failed', at + 9, id)
end
redis.call('DEL', KEYS[1] .. ':pc')
"""


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


def orphans(store: Store, queue: Queue, count: int) -> None:
    """Active jobs of the real library, whose holder is gone for good."""
    queue.add_many(count)
    _fill(store, queue, _ORPHAN, count)


def failed(store: Store, queue: Queue, count: int, *, urgent_every: int) -> None:
    """Failed jobs of the real library; one in so many has a priority."""
    plain, urgent = ({"name": "job", "data": {}, "opts": options} for options in ({}, {"priority": URGENT}))
    for start in range(0, count, ADDED):
        places = range(start, min(start + ADDED, count))
        queue.add_bulk([urgent if place % urgent_every == 0 else plain for place in places])
    _fill(store, queue, _FAIL, count)


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
    process = spawn([node_program(), "board.mjs", store.url, str(count)], directory=NODE_HOME, stdout=subprocess.PIPE)
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
        until(lambda: shown(state) == count, 120, "all queues are found")
        until(lambda: b'"degraded": []' in web.get("/readyz").body, 10, "the web process shows them")
        yield web


def shown(state: Store) -> int:
    """How many queues the newest snapshot has."""
    snapshot = snapshots.fetch(state.client)
    return len(snapshot.queues) if snapshot else 0


def _fill(store: Store, queue: Queue, text: str, count: int) -> None:
    fill = store.client.register_script(text)
    for start in range(0, count, FILL):
        fill(keys=[queue.base], args=[min(FILL, count - start)])


def _node(script: str, *arguments: object) -> None:
    command: list[str | Path] = [node_program(), script, *map(str, arguments)]
    subprocess.run(command, cwd=NODE_HOME, check=True, capture_output=True, timeout=SEED_SECONDS)


def node_program() -> Path:
    """Node, when it and bull-board are there. Raises NoPeer."""
    program = node()
    if program is None or not (NODE_HOME / "node_modules" / "@bull-board").is_dir():
        raise NoPeer("bull-board is not installed. Run: make bench")
    return program
