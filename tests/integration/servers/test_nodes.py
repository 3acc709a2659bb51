"""Servers that have a node_exporter: told of as if by a monitor; what cannot be read is told, and stops nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from dashboard.live import state_cache
from recovery import config, shared_clock
from recovery.config import load
from recovery.domain.servers.metric_history import MINUTE, ServerWindow
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.errors import StoreError
from recovery.servers import queries as servers_queries
from recovery.servers.nodes.exporter_scraper import EVERY, ExporterScraper
from recovery.servers.sample_store import POLLS_KEPT
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.registry import reset as forget_connections
from recovery.stores.state import state_keys
from tests.support.odd_pages import OddPages
from tests.support.processes.measuring import NodeExporter
from tests.support.processes.schedulers import STARTS_WITHIN, Process, furnish
from tests.support.stores.stores import Store
from tests.support.waiting import until

SECONDS = 60.0
Made = Callable[..., ExporterScraper]


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
    made: list[ConnectionRegistry] = []

    def make(toml: str, store: Store = state_store) -> ExporterScraper:
        (tmp_path / "unstall.toml").write_text(toml)
        monkeypatch.setenv("UNSTALL_CONFIG", str(tmp_path / "unstall.toml"))
        monkeypatch.setenv("UNSTALL_STATE_URL", store.url)
        made.append(ConnectionRegistry(load({"UNSTALL_STATE_URL": store.url}, directory=tmp_path)))
        return ExporterScraper(made[-1], clock=Clock())

    yield make
    for registry in made:
        registry.close()


def node(id: str, url: str) -> str:
    return f"[[nodes]]\nid = '{id}'\nexporter = '{url}'\n"


def now() -> int:
    return shared_clock.now()


def look(nodes: ExporterScraper) -> int:
    return nodes.run(now())


def test_a_node_is_told_of_as_a_monitor_tells(measuring: Made, exporter: NodeExporter, state_store: Store) -> None:
    nodes, client = measuring(node("eu-1", exporter.page)), state_store.client
    assert look(nodes) == 0
    until(lambda: look(nodes), SECONDS, "its counters move")
    (server,) = servers_queries.fetch(client)
    assert (server.id, server.origin, server.poll) == ("eu-1", SampleOrigin.EXPORTER, 5000)
    assert 0 <= (server.cpu_raw or 0) <= 100
    assert server.cpu_raw == server.cpu_host
    assert server.cores == psutil.cpu_count()
    assert server.mem_total == psutil.virtual_memory().total
    assert server.disk_total == psutil.disk_usage("/").total
    assert server.load1 is not None
    assert server.host
    assert 0 < client.pttl(state_keys.server_metrics("eu-1")) <= server.poll * POLLS_KEPT
    assert client.zscore(state_keys.SERVERS, "eu-1") == server.sampled_at
    # A point is closed when its five seconds are over.
    later = server.sampled_at + 10_000
    points = [point for point in servers_queries.history(client, "eu-1", 0.25, later).points if not point.is_unknown]
    assert points[-1].cpu_raw == pytest.approx(server.cpu_raw, abs=0.01)
    assert points[-1].memory == pytest.approx(100 * (server.mem_used or 0) / server.mem_total, abs=0.01)


def test_a_monitor_on_the_same_server_wins(measuring: Made, exporter: NodeExporter, state_store: Store) -> None:
    nodes, client = measuring(node("eu-1", exporter.page)), state_store.client
    until(lambda: look(nodes), SECONDS)
    key = state_keys.server_metrics("eu-1")
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
    monkeypatch.setattr(state_cache, "CACHE_SECONDS", 0.0)
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
        told = {trouble.id: trouble for trouble in state_cache.unreadable_servers()}
    finally:
        forget_connections()
    assert told.keys() == {"closed", "silent", "strange"}
    assert (told["closed"].says, told["closed"].target) == ("connection refused", closed)
    assert "no answer within 2 s" in told["silent"].says
    assert "node_cpu_seconds_total" in told["strange"].says
    assert all(trouble.advice and trouble.since <= now() for trouble in told.values())
    assert [server.id for server in servers_queries.fetch(state_store.client)] == ["fine"]


def test_an_exporter_that_comes_back_is_read_again(measuring: Made, state_store: Store) -> None:
    client = state_store.client
    with NodeExporter() as exporter:
        nodes = measuring(node("eu-1", exporter.page))
        until(lambda: look(nodes), SECONDS)
        exporter.stop()
        until(lambda: not look(nodes) and client.exists(state_keys.NODES), SECONDS)
        assert exporter.start()
        until(lambda: look(nodes), SECONDS)
    assert not client.exists(state_keys.NODES)


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
    cells = servers_queries.cells(store.client, "eu-1", ServerWindow(away - MINUTE // 2, 5000, 12))
    assert any(cell.cpu_raw is not None for cell in cells)


def test_the_scheduler_reads_nodes(exporter: NodeExporter, valkey: Store, state_store: Store, tmp_path: Path) -> None:
    furnish(tmp_path)
    (tmp_path / "nodes.toml").write_text(node("eu-1", f"{exporter.page}?collect[]=cpu&collect[]=loadavg"))
    environ = {"UNSTALL_REDIS_URL": valkey.url, "UNSTALL_STATE_URL": state_store.url}
    scheduler = Process(
        tmp_path, "scheduler", ("manage.py", "scheduler"), {**environ, "UNSTALL_CONFIG": str(tmp_path / "nodes.toml")}
    )
    try:
        until(lambda: servers_queries.fetch(state_store.client), STARTS_WITHIN, "a sample")
        (server,) = servers_queries.fetch(state_store.client)
        assert (server.id, server.origin, server.mem_total) == ("eu-1", SampleOrigin.EXPORTER, None)
        assert "HTTP Request" not in scheduler.log
    finally:
        scheduler.end()
