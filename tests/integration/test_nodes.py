"""Servers that have a node_exporter: told of as if by a monitor; what cannot be read is told, and stops nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dashboard.live import mirror
from recovery import config, shared_clock
from recovery.config import load
from recovery.connections import state
from recovery.connections.publishing import POLLS_KEPT
from recovery.connections.registry import Registry
from recovery.connections.registry import reset as forget_connections
from recovery.domain.meters import MINUTE, Window
from recovery.domain.servers import Origin, Server
from recovery.errors import StoreError
from recovery.reads import servers
from recovery.scanners.nodes.exporters import EVERY, Exporters
from tests.measuring import NodeExporter
from tests.odd_pages import OddPages
from tests.schedulers import STARTS_WITHIN, Process, furnish
from tests.stores import Store
from tests.waiting import until

SECONDS = 60.0
Made = Callable[..., Exporters]


@pytest.fixture(scope="module")
def exporter() -> Iterator[NodeExporter]:
    with NodeExporter() as running:
        yield running


class Clock:
    """Five seconds a look, however long it takes."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        self.seconds += EVERY
        return self.seconds


@pytest.fixture
def measuring(tmp_path: Path, state_store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    """Nodes by this TOML, looked at by hand."""
    made: list[Registry] = []

    def make(toml: str, store: Store = state_store) -> Exporters:
        (tmp_path / "unstall.toml").write_text(toml)
        monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
        monkeypatch.setenv("UNSTALL_STATE_URL", store.url)
        made.append(Registry(load({"UNSTALL_STATE_URL": store.url}, directory=tmp_path)))
        return Exporters(made[-1], clock=Clock())

    yield make
    for registry in made:
        registry.close()


def node(id: str, url: str) -> str:
    return f"[[nodes]]\nid = '{id}'\nexporter = '{url}'\n"


def now() -> int:
    return shared_clock.now()


def look(nodes: Exporters) -> int:
    return nodes.run(now())


def test_a_node_is_told_of_as_a_monitor_tells(measuring: Made, exporter: NodeExporter, state_store: Store) -> None:
    nodes, client = measuring(node("eu-1", exporter.page)), state_store.client
    assert look(nodes) == 0
    until(lambda: look(nodes), SECONDS, "its counters move")
    (server,) = servers.fetch(client)
    assert (server.id, server.origin, server.poll) == ("eu-1", Origin.EXPORTER, 5000)
    assert 0 <= (server.cpu_raw or 0) <= 100
    assert server.cpu_raw == server.cpu_host
    assert server.cores == psutil.cpu_count()
    assert server.mem_total == psutil.virtual_memory().total
    assert server.disk_total == psutil.disk_usage("/").total
    assert server.load1 is not None
    assert server.host
    assert 0 < client.pttl(state.server_metrics("eu-1")) <= server.poll * POLLS_KEPT
    assert client.zscore(state.SERVERS, "eu-1") == server.sampled_at
    # A point is closed when its five seconds are over.
    later = server.sampled_at + 10_000
    points = [point for point in servers.history(client, "eu-1", 0.25, later).points if not point.is_unknown]
    assert points[-1].cpu_raw == pytest.approx(server.cpu_raw, abs=0.01)
    assert points[-1].memory == pytest.approx(100 * (server.mem_used or 0) / server.mem_total, abs=0.01)


def test_a_monitor_on_the_same_server_wins(measuring: Made, exporter: NodeExporter, state_store: Store) -> None:
    nodes, client = measuring(node("eu-1", exporter.page)), state_store.client
    until(lambda: look(nodes), SECONDS)
    key = state.server_metrics("eu-1")
    client.delete(key)
    client.hset(key, mapping=Server("eu-1", "its own", now(), 5000).encode())
    assert [look(nodes) for _ in range(3)] == [0, 0, 0]
    assert client.hget(key, "host") == b"its own"
    client.delete(key)  # as its time to live does
    until(lambda: look(nodes), SECONDS)
    assert client.hget(key, "origin") == b"node-exporter"


def test_what_cannot_be_read_is_told_and_stops_nobody(
    measuring: Made, exporter: NodeExporter, state_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "CACHE_SECONDS", 0.0)
    with OddPages() as pages:
        closed, silent, strange = (
            "http://127.0.0.1:1/metrics",
            pages.page(None),
            pages.page(b"HTTP/1.1 200 OK\r\n\r\ngo_goroutines 5\n"),
        )
        listed = (("fine", exporter.page), ("closed", closed), ("silent", silent), ("strange", strange))
        nodes = measuring("".join(node(*one) for one in listed))
        until(lambda: look(nodes), SECONDS)
    config.current.cache_clear()
    forget_connections()
    try:
        told = {trouble.id: trouble for trouble in mirror.unread()}
    finally:
        forget_connections()
    assert told.keys() == {"closed", "silent", "strange"}
    assert (told["closed"].says, told["closed"].target) == ("connection refused", closed)
    assert "no answer within 2 s" in told["silent"].says
    assert "node_cpu_seconds_total" in told["strange"].says
    assert all(trouble.advice and trouble.since <= now() for trouble in told.values())
    assert [server.id for server in servers.fetch(state_store.client)] == ["fine"]


def test_an_exporter_that_comes_back_is_read_again(measuring: Made, state_store: Store) -> None:
    client = state_store.client
    with NodeExporter() as exporter:
        nodes = measuring(node("eu-1", exporter.page))
        until(lambda: look(nodes), SECONDS)
        exporter.stop()
        until(lambda: not look(nodes) and client.exists(state.NODES), SECONDS)
        assert exporter.start()
        until(lambda: look(nodes), SECONDS)
    assert not client.exists(state.NODES)


def test_what_is_measured_while_the_state_store_is_away_is_written_later(
    measuring: Made, exporter: NodeExporter, serve: Callable[..., Store]
) -> None:
    store = serve()
    nodes = measuring(node("eu-1", exporter.page), store)
    until(lambda: look(nodes), SECONDS)
    store.pause()
    away = now() + MINUTE  # so that no other look falls into the same five seconds

    def is_refused() -> bool:
        with suppress(StoreError):
            return nodes.run(away) < 0
        return True

    until(is_refused, SECONDS)
    store.resume()
    until(lambda: look(nodes), SECONDS)
    cells = servers.cells(store.client, "eu-1", Window(away - MINUTE // 2, 5000, 12))
    assert any(cell.cpu_raw is not None for cell in cells)


def test_the_scheduler_reads_nodes(exporter: NodeExporter, valkey: Store, state_store: Store, tmp_path: Path) -> None:
    furnish(tmp_path)
    (tmp_path / "nodes.toml").write_text(node("eu-1", f"{exporter.page}?collect[]=cpu&collect[]=loadavg"))
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url}
    scheduler = Process(
        tmp_path, "scheduler", ("manage.py", "scheduler"), {**environ, "UNSTALL_CONFIG": str(tmp_path / "nodes.toml")}
    )
    try:
        until(lambda: servers.fetch(state_store.client), STARTS_WITHIN, "a sample")
        (server,) = servers.fetch(state_store.client)
        assert (server.id, server.origin, server.mem_total) == ("eu-1", Origin.EXPORTER, None)
        assert "HTTP Request" not in scheduler.log
    finally:
        scheduler.end()
