"""Clients that send or read slowly, or without end: others are served as before, and what they may hold is bounded."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from tests.support.patience import patience
from tests.support.processes.web_process import WebProcess
from tests.support.stores.stores import Store
from tests.support.waiting import until

LARGE = "/static/plotly/plotly.min.js"  # 4.6 MB, for everybody
READERS = 40  # as many as five times the pages that are made at once
MEGABYTE = 1 << 20
_ASK = f"GET {LARGE} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
LIMITS = {
    "dashboard.server.page_sender.SEND_SECONDS": 600.0,
    "dashboard.server.uvicorn_server.HEAD_SECONDS": 4.0,
    "dashboard.server.request_body.INCOMING_LIMIT": 3 * MEGABYTE,
}

Connect = Callable[[], socket.socket]


@pytest.fixture(scope="module")
def web() -> Iterator[WebProcess]:
    with Store() as queues, Store() as state:
        environ = {"UNSTALL_STATE_URL": state.url, "UNSTALL_REDIS_URL": queues.url}
        with WebProcess(environ, LIMITS) as process:
            yield process


@pytest.fixture
def connect(web: WebProcess) -> Iterator[Connect]:
    """Opens connections that take next to nothing on their way."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(_client(web))


def test_pages_are_served_beside_readers_that_read_nothing(web: WebProcess, connect: Connect) -> None:
    assert web.get("/login").status == 200
    process = psutil.Process(web.pid)
    memory = process.memory_info().rss
    for _ in range(READERS):
        reader = connect()
        reader.sendall(_ASK)
        assert reader.recv(12) == b"HTTP/1.1 200"
    began = time.monotonic()
    assert [web.get("/login").status for _ in range(5)] == [200] * 5
    assert time.monotonic() - began < patience(2)
    assert process.memory_info().rss - memory < READERS * MEGABYTE, "each holds a piece, not the file"


def test_a_reader_that_takes_nothing_is_dropped_with_its_file(valkey: Store, state_store: Store) -> None:
    environ = {"UNSTALL_STATE_URL": state_store.url, "UNSTALL_REDIS_URL": valkey.url}
    with WebProcess(environ, {"dashboard.server.page_sender.SEND_SECONDS": 3.0}) as web, _client(web) as reader:
        reader.sendall(_ASK)
        assert reader.recv(12) == b"HTTP/1.1 200"
        assert _held_for(web, reader) == 2
        until(lambda: _held_for(web, reader) == 0, 10, "both are closed")


@pytest.mark.parametrize("sent", [b"", b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "], ids=["nothing", "half"])
def test_a_request_that_never_comes_is_not_waited_for(connect: Connect, sent: bytes) -> None:
    client = connect()
    client.sendall(sent)
    assert client.recv(100) == b""


@pytest.mark.parametrize("start", [b"GET /login HTTP/1.1\r\nX-Long: ", b"GET /"], ids=["header", "address"])
def test_a_head_without_an_end_is_refused_and_takes_no_memory(web: WebProcess, connect: Connect, start: bytes) -> None:
    assert web.get("/login").status == 200
    memory = psutil.Process(web.pid).memory_info().rss
    client = connect()
    answer = _send_without_end(client, start)
    assert answer == b"" or int(answer.split()[1]) in (414, 431), answer
    assert psutil.Process(web.pid).memory_info().rss - memory < 20 * MEGABYTE
    assert web.get("/login").status == 200


def test_many_short_headers_are_refused_although_they_are_few_bytes(connect: Connect) -> None:
    client = connect()
    client.sendall(b"GET /login HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"ab:\r\n" * 20_000)
    assert client.recv(12) == b"HTTP/1.1 431"


def test_requests_that_wait_for_an_answer_that_is_not_taken_are_not_kept(web: WebProcess, connect: Connect) -> None:
    """Each of 18 bytes takes two kilobytes until it is answered."""
    assert web.get("/login").status == 200
    memory = psutil.Process(web.pid).memory_info().rss
    clients = [connect() for _ in range(4)]
    for client in clients:
        with suppress(OSError):  # it is dropped before it has sent all
            client.sendall(_ASK + b"GET /x HTTP/1.1\r\n\r\n" * 14_000)
    until(lambda: not any(_held_for(web, client) for client in clients), 10, "all are dropped")
    assert psutil.Process(web.pid).memory_info().rss - memory < 20 * MEGABYTE
    assert web.get("/login").status == 200


def test_some_requests_may_be_sent_before_the_first_is_answered(connect: Connect) -> None:
    client = connect()
    client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 5)
    taken = b""
    while taken.count(b"HTTP/1.1 200") < 5:
        some = client.recv(65_536)
        assert some, taken
        taken += some


def test_bodies_that_never_end_share_a_limit(web: WebProcess, connect: Connect) -> None:
    head = b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1900000\r\n\r\n"
    clients = [connect() for _ in range(4)]
    for client in clients:
        client.sendall(head + b"x" * 1_800_000)
    answers = [client.recv(12) for client in clients[1:] if _is_answered(client)]
    assert b"HTTP/1.1 503" in answers
    for client in clients:
        client.close()
    until(lambda: web.get("/login", method="POST", form={"username": "x"}).status != 503, 10, "there is room again")


def _held_for(web: WebProcess, reader: socket.socket) -> int:
    """What the process has open for a reader: its connection, and the file."""
    process = psutil.Process(web.pid)
    connections = [one for one in process.net_connections("tcp") if one.raddr == reader.getsockname()]
    return len(connections) + sum(file.path.endswith("plotly.min.js") for file in process.open_files())


def _client(web: WebProcess) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    client.settimeout(patience(10))
    client.connect(("127.0.0.1", web.port))
    return client


def _send_without_end(client: socket.socket, start: bytes) -> bytes:
    """What was answered; b"" where the connection was cut with what was still on its way."""
    try:
        client.sendall(start)
        for _ in range(100):
            client.sendall(b"x" * MEGABYTE)
    except OSError:
        pass
    else:
        raise AssertionError("100 MB were taken")
    try:
        return client.recv(100)
    except OSError:
        return b""


def _is_answered(client: socket.socket) -> bool:
    client.settimeout(1.0)
    try:
        return bool(client.recv(1, socket.MSG_PEEK))
    except TimeoutError:
        return False
