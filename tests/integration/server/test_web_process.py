"""How `manage.py web` starts, listens and stops: real processes, real signals."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import pytest

from dashboard.server.listen import CannotListen, listen
from recovery.processes import malloc
from tests.support.patience import patience
from tests.support.processes.processes import run
from tests.support.processes.web_process import WebProcess, environ_of
from tests.support.stores.stores import Store
from tests.support.waiting import until


@pytest.fixture
def environ(state_store: Store, valkey: Store) -> dict[str, str]:
    return {"UNSTALL_STATE_URL": state_store.url, "UNSTALL_REDIS_URL": valkey.url}


@pytest.fixture
def web(environ: dict[str, str]) -> Iterator[WebProcess]:
    with WebProcess(environ) as process:
        yield process


def refused(directory: Path, environ: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Start it where it must refuse to."""
    return run("manage.py", "web", environ=environ_of(directory, {**malloc.ENVIRON, **environ}), seconds=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_an_idle_process_in_order(web: WebProcess, number: signal.Signals) -> None:
    web.signal(number)
    assert web.wait(patience(3)) == 0
    assert "Traceback" not in web.log


async def test_open_streams_get_a_farewell_and_the_process_ends_within_three_seconds(web: WebProcess) -> None:
    children = psutil.Process(web.pid).children(recursive=True)
    async with AsyncExitStack() as stack:
        tabs = [await stack.enter_async_context(web.tab()) for _ in range(30)]
        started = time.monotonic()
        web.signal(signal.SIGTERM)
        farewells = await asyncio.gather(*(tab.next("bye") for tab in tabs))
        assert {farewell.detail["reason"] for farewell in farewells} == {"restarting"}
        assert len({farewell.detail["retry"] for farewell in farewells}) > 10
        assert all(await asyncio.gather(*(tab.ended() for tab in tabs)))
        assert await asyncio.to_thread(web.wait, patience(3)) == 0
        assert time.monotonic() - started < patience(3)
    assert not children
    assert "Traceback" not in web.log
    assert " error " not in web.log


async def test_a_request_in_hand_is_finished_or_left_after_three_seconds(web: WebProcess) -> None:
    async with _half_a_request(web):
        started = time.monotonic()
        web.signal(signal.SIGTERM)
        await asyncio.to_thread(web.wait, 8)
        assert 2 < time.monotonic() - started < patience(6)


async def test_a_second_signal_ends_it_at_once(web: WebProcess) -> None:
    async with _half_a_request(web):
        web.signal(signal.SIGTERM)
        until(lambda: not _listens(web.port), what="it accepts nobody new")
        started = time.monotonic()
        web.signal(signal.SIGTERM)
        assert await asyncio.to_thread(web.wait, patience(3)) == 128 + signal.SIGTERM
        assert time.monotonic() - started < patience(1)


def test_a_taken_port_is_named_with_the_remedy(tmp_path: Path, environ: dict[str, str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = refused(tmp_path, {**environ, "UNSTALL_BIND": f"127.0.0.1:{port}"})
    assert result.returncode == 2
    assert f"Port {port} on 127.0.0.1 is in use" in result.stderr
    assert f"UNSTALL_BIND=127.0.0.1:{port + 1}" in result.stderr
    assert "Traceback" not in result.stderr


def test_an_address_that_is_none_is_refused(tmp_path: Path, environ: dict[str, str]) -> None:
    result = refused(tmp_path, {**environ, "UNSTALL_BIND": "127.0.0.1:70000"})
    assert result.returncode == 2
    assert "UNSTALL_BIND" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("bind", ["8000", "127.0.0.1:http", "127.0.0.1:70000", ""])
def test_what_is_no_address_is_told_with_what_one_is(bind: str) -> None:
    with pytest.raises(CannotListen, match=r"UNSTALL_BIND: .* is no address\. Write host:port"):
        listen(bind)


def test_a_web_process_without_a_state_store_says_what_to_set(tmp_path: Path, valkey: Store) -> None:
    result = refused(tmp_path, {"UNSTALL_REDIS_URL": valkey.url})
    assert result.returncode == 2
    assert "UNSTALL_STATE_URL" in result.stderr


def test_a_configuration_that_cannot_work_ends_with_two_and_says_everything(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    (tmp_path / "unstall.toml").write_text("nonsense = 1\n[intervals]\ncollect = -1\n")
    result = refused(tmp_path, environ)
    assert result.returncode == 2, result.stderr
    assert "nonsense" in result.stderr
    assert "intervals.collect" in result.stderr


def test_it_listens_on_a_unix_socket_and_removes_it(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "web.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with WebProcess({**environ, "UNSTALL_BIND": f"unix:{path}"}, socket_path=path) as web:
        assert b"200" in _ask(path)
        web.signal(signal.SIGTERM)
        assert web.wait(patience(3)) == 0
    assert not path.exists()


def test_a_file_in_place_of_the_socket_is_left_alone(tmp_path: Path, environ: dict[str, str]) -> None:
    path = tmp_path / "precious"
    path.write_text("keep me")
    result = refused(tmp_path, {**environ, "UNSTALL_BIND": f"unix:{path}"})
    assert result.returncode == 2
    assert path.read_text() == "keep me"


@pytest.mark.parametrize(("path", "kind"), [("/api/v1/queues", "application/json"), ("/queues", "text/plain")])
def test_an_address_that_is_too_long_is_refused(web: WebProcess, path: str, kind: str) -> None:
    """Below /api/ in the shape that the OpenAPI document gives to every failure."""
    answer = web.get(f"{path}?q={'x' * 70_000}")
    assert (answer.status, answer.headers["Content-Type"].partition(";")[0]) == (414, kind)
    assert b"The URL has more than 65,535 bytes." in answer.body
    if kind == "application/json":
        assert json.loads(answer.body)["error"]["code"] == "too_long"
    assert web.get("/healthz").status < 500


def test_the_log_is_quiet_about_requests_and_the_server_names_nobody(web: WebProcess) -> None:
    answer = web.get("/healthz")
    assert "server" not in {name.lower() for name in answer.headers}
    assert "healthz" not in web.log
    entry = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info |warn |error) \S+  ")
    assert "Unstall listens on http" in web.log
    assert [line for line in web.log.splitlines() if not entry.match(line)] == []


def _ask(path: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return client.recv(100)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class _half_a_request:  # noqa: N801 -- reads as a verb where it is used
    """A form whose body never arrives in full."""

    def __init__(self, web: WebProcess) -> None:
        self._socket = socket.create_connection(("127.0.0.1", web.port))
        self._web = web

    async def __aenter__(self) -> None:
        self._socket.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nname=")
        await asyncio.to_thread(self._web.get, "/healthz")  # it was read: a later request is answered

    async def __aexit__(self, *_: object) -> None:
        self._socket.close()
