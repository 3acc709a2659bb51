"""How the fault tests say what they expect: which error, in which words, how soon; and the servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from recovery.errors import StoreError
from recovery.stores.redis.client import StoreClient
from tests.support.patience import patience

PING = [("PING",)]
LIMIT = 1.4  # seconds: a page has to know within one, and the machine of a test may be busy


@contextmanager
def told_within(seconds: float, kind: type[StoreError], match: str | None = None) -> Iterator[None]:
    started = time.monotonic()
    with pytest.raises(kind, match=match) as caught:
        yield
    took = time.monotonic() - started
    assert took < patience(seconds), f"{caught.value} took {took:.2f} s"
    assert type(caught.value) is kind


def answers(wire: StoreClient) -> bool:
    try:
        return wire.call(PING) == [b"PONG"]
    except StoreError:
        return False


@contextmanager
def speaking(piece: bytes, pause: float) -> Iterator[int]:
    """The port of a server that says this again and again, whatever it is asked."""
    ended = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(0.05)

    def serve() -> None:
        while not ended.is_set():
            with contextlib.suppress(OSError):
                near, _ = listener.accept()
                with near:
                    near.recv(100)
                    while not ended.wait(pause):
                        near.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        ended.set()
        thread.join(5)
        listener.close()
