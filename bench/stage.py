"""What a measurement stands on: private stores, queues of the real library, idle clients, our processes, bull-board.

Everything is on 127.0.0.1 and dies with this process.
"""

from __future__ import annotations

import asyncio
import base64
import random
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from recovery.reads.queues import snapshot_store
from tests.support.processes.driver import node
from tests.support.processes.fleet import Queue
from tests.support.processes.processes import end, spawn
from tests.support.processes.web_process import ROOT, WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until

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
    lose(store, queue, count)


def lose(store: Store, queue: Queue, count: int) -> None:
    """So many of the jobs that wait were taken by a worker that is gone for good."""
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
    snapshot = snapshot_store.fetch(state.client)
    return len(snapshot.queues) if snapshot else 0


# -- distance


@contextmanager
def away(port: int, rtt_ms: float, stalls: Stalls | None = None) -> Iterator[str]:
    """The URL of a proxy on loopback that hands everything on half a round trip later, both ways."""
    loop = asyncio.new_event_loop()

    async def hand_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", port)
        late = rtt_ms / 2000
        both = _late(reader, ours, late, None), _late(theirs, writer, late, stalls)
        await asyncio.gather(*both, return_exceptions=True)

    async def hang_up() -> None:
        server.close()
        pumps = asyncio.all_tasks() - {asyncio.current_task()}
        for pump in pumps:
            pump.cancel()
        await asyncio.gather(*pumps, return_exceptions=True)

    server = loop.run_until_complete(asyncio.start_server(hand_on, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        asyncio.run_coroutine_threadsafe(hang_up(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)


@dataclass(slots=True)
class Stalls:
    """One answer in so many comes so many seconds later, with all that follow it on its connection; `count` so far."""

    share: float
    seconds: float
    dice: random.Random
    count: int = 0

    def next(self) -> float:
        if self.dice.random() >= self.share:
            return 0.0
        self.count += 1
        return self.seconds


async def _late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, late: float, stalls: Stalls | None) -> None:
    """Bytes leave in the order in which they came, each so many seconds later."""
    loop, due = asyncio.get_running_loop(), 0.0
    while data := await reader.read(1 << 18):
        due = max(due, loop.time() + late + (stalls.next() if stalls else 0.0))
        loop.call_at(due, writer.write, data)
    loop.call_at(max(due, loop.time() + late), writer.close)


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
