"""Servers whose samples a test makes up, told as their monitors tell them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import redis

from recovery import shared_clock
from recovery.domain.servers.samples import Server
from recovery.domain.servers.unsent_samples import UnsentSamples
from recovery.errors import StoreError
from recovery.servers.sample_store import SampleStore

POLL = 5_000
EVERY = 0.25  # seconds between two samples of a steady server: so a test need not wait for polls


def tell(store: redis.Redis, id: str, cpu: float | None, at: int, *, poll: int = POLL) -> None:
    """One sample, published now."""
    server = Server(id=id, host="host", sampled_at=at, poll=poll, cpu_raw=cpu, cpu_ema=cpu)
    SampleStore(store).publish(server, UnsentSamples())


class Steady:
    """A server that tells the same CPU again and again, until it is told another."""

    def __init__(self, store: redis.Redis, id: str, cpu: float, poll: int) -> None:
        self.id, self.cpu, self.poll = id, cpu, poll
        self.store = store
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            with suppress(StoreError):  # a test may take its store away
                tell(self.store, self.id, self.cpu, shared_clock.now(), poll=self.poll)
            self._ended.wait(EVERY)

    def end(self) -> None:
        self._ended.set()


@contextmanager
def steady(store: redis.Redis, id: str, cpu: float, *, poll: int = POLL) -> Iterator[Steady]:
    server = Steady(store, id, cpu, poll)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.end()
        thread.join()
