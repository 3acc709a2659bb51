"""One snapshot of all queues: ours, the raw socket as the floor, a redis-py pipeline, and bull-board's overview."""

from __future__ import annotations

import socket
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import hiredis

from bench import stage
from bench.measure import Result, median, percentile, side_by_side
from recovery.backends.registry import reader
from recovery.config import load
from recovery.domain.identifiers import QueueRef
from recovery.domain.queues.types import LibraryVersion, QueueLibrary, QueueSample
from recovery.scanners.collect.deployment_sampler import CollectedDeployment, DeploymentSampler
from recovery.scanners.discovery.known_queues import KnownQueue, KnownQueues
from recovery.stores.redis.connection import RECEIVE
from recovery.stores.redis.pipeline import Command, CommandChunk, EncodedBatch, packed
from recovery.stores.registry import ConnectionRegistry
from tests.support.stores.stores import Store

SIZES = (100, 1000)
FULL_SHARE = 10  # one queue in ten holds jobs
JOBS = 200
CLIENTS = 1000
FLAVOUR = LibraryVersion(QueueLibrary.BULLMQ, 5, "5.81.5")
RAW_CHUNK = 2000  # commands; measured: 1,000 and 4,000 are no faster on a bare socket
FLOOR_TIMES = 1.5
BOARD_TIMES = 20


def run(*, quick: bool) -> Result:
    result = Result("snapshot", f"A snapshot, with {CLIENTS:,} idle clients connected")
    result.setting = {"queues": SIZES, "full": f"1 in {FULL_SHARE}", "jobs": JOBS, "clients": CLIENTS}
    for size in SIZES:
        _measure(size, result, rounds=15 if quick else 60, board_rounds=3 if quick else 8)
    return result


def _measure(size: int, result: Result, *, rounds: int, board_rounds: int) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(stage.queues(size, full=size // FULL_SHARE, jobs=JOBS))
        stack.enter_context(stage.idle_clients(store, CLIENTS, size))
        board = stack.enter_context(stage.board(store, size))
        plans = _Plans(store, size)
        stack.callback(plans.close)
        times = side_by_side(
            {"floor": plans.floor, "ours": plans.ours, "whole": plans.whole, "redis-py": plans.pipeline}, rounds
        )
        times |= side_by_side({"bull-board": lambda: _get(f"{board}/api/queues")}, board_rounds, warm=1)
        assert len(plans.ours()) == size
    _report(size, times, result, len(plans.commands))


def _report(size: int, times: dict[str, list[float]], result: Result, commands: int) -> None:
    names = {
        "floor": "raw socket, bytes made beforehand, nothing parsed",
        "ours": "Unstall: sent, parsed, decoded to samples",
        "whole": "Unstall: a whole tick, with workers, ages and rates",
        "redis-py": "redis-py pipeline, not decoded",
        "bull-board": "bull-board /api/queues",
    }
    for name, label in names.items():
        note = f"best {min(times[name]):,.1f} ms, p99 {percentile(times[name], 0.99):,.1f} ms"
        result.row(f"{size:,} queues, {label}", median(times[name]), "ms", note)
    result.row(f"{size:,} queues, commands in one snapshot", commands, "")
    ours = median(times["ours"])
    result.goal(f"{size:,} queues: ≤ 1.5 × the floor", ours / median(times["floor"]), most=FLOOR_TIMES)
    result.goal(
        f"{size:,} queues: ≥ 20 × faster than bull-board, whole tick",
        median(times["bull-board"]) / median(times["whole"]),
        least=BOARD_TIMES,
    )


class _Plans:
    """The same questions asked in three ways."""

    def __init__(self, store: Store, size: int) -> None:
        self.refs = [QueueRef("main", f"{stage.PREFIX}:bench-{number}") for number in range(size)]
        self.reader = reader(FLAVOUR)
        plans = [self.reader.sample_plan(ref) for ref in self.refs]
        self.commands = [command for plan in plans for command in plan]
        self.width = len(plans[0])
        self.encoded = EncodedBatch(self.commands)
        self.registry = ConnectionRegistry(load({"UNSTALL_REDIS_URL": store.url}))
        self.wire = self.registry.wire("main")
        self.watch = self._watch()
        self.client = store.connect()
        self.socket = socket.create_connection(("127.0.0.1", store.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = bytearray(RECEIVE)
        self.raw_chunks = _packed(self.commands)
        self.sizes = [self._answer_size(chunk) for chunk in self.raw_chunks]

    def ours(self) -> list[QueueSample]:
        """As the collector does it: decoded queue by queue while the rest is on its way."""
        now, width, sample = int(time.time() * 1000), self.width, self.reader.sample
        replies: list[Any] = []
        samples: list[QueueSample] = []
        place = 0
        for part in self.wire.parts(self.encoded):
            replies += part
            while place + width <= len(replies):
                ref = self.refs[len(samples)]
                samples.append(sample(ref, FLAVOUR, replies[place : place + width], now)[0])
                place += width
        return samples

    def whole(self) -> CollectedDeployment:
        """With everything else that a tick asks: workers of the whole server, ages of the oldest jobs, its vitals."""
        look = self.watch.look(int(time.time() * 1000))
        assert not look.deployment.error, look.deployment.error
        return look

    def floor(self) -> None:
        """The same bytes, and as many bytes back: what the server and the kernel take."""
        for chunk, size in zip(self.raw_chunks, self.sizes, strict=True):
            self.socket.sendall(chunk.sent)
            left = size
            while left:
                left -= self.socket.recv_into(self.buffer, min(left, len(self.buffer)))

    def pipeline(self) -> list[object]:
        pipeline = self.client.pipeline(transaction=False)
        for command in self.commands:
            pipeline.execute_command(*command)  # type: ignore[no-untyped-call]
        replies: list[object] = pipeline.execute(raise_on_error=False)
        return replies

    def close(self) -> None:
        self.socket.close()
        self.client.close()
        self.registry.close()

    def _watch(self) -> DeploymentSampler:
        roster = KnownQueues()
        roster.replace("main", [KnownQueue(ref, FLAVOUR, 0, 0) for ref in self.refs])
        return DeploymentSampler(self.registry.config.deployments[0], lambda: self.wire, roster, lambda refs, now: {})

    def _answer_size(self, chunk: CommandChunk) -> int:
        """How many bytes come back: parsed once, so that later nobody needs to. Nothing here expires meanwhile."""
        self.socket.sendall(chunk.sent)
        parser, replies, size = hiredis.Reader(), 0, 0
        while replies < chunk.replies:
            received = self.socket.recv_into(self.buffer)
            parser.feed(bytes(self.buffer[:received]))
            size += received
            while parser.gets() is not False:
                replies += 1
        return size


def _packed(commands: Sequence[Command]) -> list[CommandChunk]:
    """In chunks of the size that is fastest when nothing has to be parsed."""
    starts = range(0, len(commands), RAW_CHUNK)
    return [_chunk(commands[start : start + RAW_CHUNK]) for start in starts]


def _chunk(commands: Sequence[Command]) -> CommandChunk:
    return CommandChunk(b"".join(map(packed, commands)), len(commands))


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=120) as answer:
        body: bytes = answer.read()
    return body
