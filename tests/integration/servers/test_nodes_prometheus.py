"""Servers that a real Prometheus knows: their newest values, and charts that have a past at once."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from recovery import shared_clock
from recovery.config import load
from recovery.config import nodes as config_nodes
from recovery.config.addresses.http_endpoints import HttpEndpoint
from recovery.domain.servers import node_exporter as told
from recovery.domain.servers.metric_history import POINTS, ServerSeries
from recovery.domain.servers.samples import SampleOrigin, Server
from recovery.errors import StoreError
from recovery.servers import queries as servers_queries
from recovery.servers import server_history
from recovery.servers.nodes.prometheus_poller import EVERY, PrometheusPoller
from recovery.servers.prometheus_nodes import PrometheusNodes
from recovery.stores.http import promql
from recovery.stores.http.promql import PrometheusGrid, PrometheusSeries, quoted
from recovery.stores.registry import ConnectionRegistry
from recovery.stores.state import state_keys
from tests.support.odd_pages import OK, OddPages
from tests.support.processes.measuring import NodeExporter, Prometheus, patient
from tests.support.stores.stores import Store
from tests.support.waiting import until

SECONDS = 60.0
HOST, NODE = "127.0.0.1", 'job="node"'


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch)


@pytest.fixture(scope="module")
def prometheus() -> Iterator[Prometheus]:
    """It has scraped a node_exporter often enough."""
    with NodeExporter() as exporter, Prometheus(f"{HOST}:{exporter.port}") as running:
        known = _nodes(running.url)

        def knows() -> bool:
            with suppress(StoreError):
                return any(newest.gauges.host for newest in known.newest())
            return False

        until(knows, SECONDS, "it knows the node")
        yield running


@pytest.fixture
def registry(tmp_path: Path, state_store: Store, prometheus: Prometheus) -> Iterator[ConnectionRegistry]:
    made = _registry(tmp_path, state_store, prometheus.url)
    yield made
    made.close()


def _registry(directory: Path, store: Store, url: str, *, match: str = NODE, more: str = "") -> ConnectionRegistry:
    (directory / "unstall.toml").write_text(f"[prometheus]\nurl = '{url}'\nmatch = '{match}'\n{more}")
    return ConnectionRegistry(load({"UNSTALL_STATE_URL": store.url}, directory=directory))


def _nodes(url: str) -> PrometheusNodes:
    return PrometheusNodes(config_nodes.PrometheusConfig(HttpEndpoint(url)))


def _scanner(registry: ConnectionRegistry) -> PrometheusPoller:
    assert registry.config.prometheus is not None
    return PrometheusPoller(registry, registry.config.prometheus)


def now() -> int:
    return shared_clock.now()


def _known(series: ServerSeries) -> list[float]:
    return [point.cpu_raw for point in series.points if point.cpu_raw is not None]


def _with_points(registry: ConnectionRegistry, server: Server) -> ServerSeries:
    def charted() -> ServerSeries | None:
        # A point is closed when its fifteen seconds are over.
        series = server_history.history(registry, server.id, 0.25, now() + 15_000, origin=server.origin)
        return series if _known(series) else None

    found = until(charted, SECONDS)
    assert found
    return found


def test_a_server_is_told_of_and_has_a_past_at_once(registry: ConnectionRegistry, state_store: Store) -> None:
    scanner, client = _scanner(registry), state_store.client
    until(lambda: scanner.run(now()), SECONDS)
    (server,) = servers_queries.fetch(client)
    assert (server.id, server.origin) == (HOST, SampleOrigin.PROMETHEUS)
    assert server.poll > EVERY * 1000
    assert 0 <= (server.cpu_raw or 0) <= 100
    assert server.cores == psutil.cpu_count()
    assert server.mem_total == psutil.virtual_memory().total
    assert server.disk_total == psutil.disk_usage("/").total
    assert 0 < (server.disk_used or 0) < server.disk_total
    assert None not in (server.load1, server.load5, server.load15)
    assert abs(now() - server.sampled_at) < SECONDS * 1000

    for hours in (0.25, 1, 6, 168):
        series = server_history.history(registry, server.id, hours, now() + 15_000, origin=server.origin)
        assert 0 < len(series.points) <= POINTS
        assert "Read from the Prometheus" in series.note
    series = _with_points(registry, server)
    newest = [point for point in series.points if point.cpu_raw is not None][-1]
    assert 0 <= (newest.cpu_raw or 0) <= 100
    assert newest.cpu_ema is not None
    assert 0 < (newest.memory or 0) < 100
    assert newest.load is not None
    assert series.points[0].is_unknown  # before anybody measured


def test_a_scrape_is_told_once_and_by_nobody_closer(registry: ConnectionRegistry, state_store: Store) -> None:
    scanner, client = _scanner(registry), state_store.client
    until(lambda: scanner.run(now()), SECONDS)
    until(lambda: scanner.run(now()) == 0, SECONDS, "a look between two scrapes")
    client.hset(state_keys.server_metrics(HOST), mapping=Server(HOST, "its own", now(), 5000).encode())
    assert [scanner.run(now()) for _ in range(3)] == [0, 0, 0]
    assert client.hget(state_keys.server_metrics(HOST), "host") == b"its own"


def test_a_server_may_have_a_name_of_its_own(tmp_path: Path, state_store: Store, prometheus: Prometheus) -> None:
    ((up,),) = promql.instant(HttpEndpoint(prometheus.url), ["up"])
    node = f"[[nodes]]\nid = 'eu\"(1'\ninstance = '{up.labels['instance']}'\n"
    registry = _registry(tmp_path, state_store, prometheus.url, more=node)
    try:
        until(lambda: _scanner(registry).run(now()), SECONDS)
        (server,) = servers_queries.fetch(state_store.client)
        assert server.id == 'eu"(1'
        assert _known(_with_points(registry, server))
    finally:
        registry.close()


def test_what_it_cannot_tell_is_told_in_words(tmp_path: Path, state_store: Store, prometheus: Prometheus) -> None:
    with OddPages() as pages:
        halved = pages.page(b'HTTP/1.1 400 X\r\n\r\n{"error": "half \\ud800 <b>"}')
        strange = pages.page(OK + b'{"data": {"result": [{"metric": {}, "value": [1]}]}}')
        cases = (
            ("http://127.0.0.1:1", NODE, "connection refused", True),
            (halved, NODE, "400 Bad Request: half ? <b>", True),
            (strange, NODE, "does not answer like a Prometheus", True),
            (prometheus.url, 'job=~"("', "400 Bad Request", True),
            (prometheus.url, 'job="other"', "reports no server", False),
        )
        for url, match, says, is_charted in cases:
            registry = _registry(tmp_path, state_store, url, match=match)
            try:
                assert _scanner(registry).run(now()) == 0
                series = server_history.history(registry, HOST, 1, now(), origin=SampleOrigin.PROMETHEUS)
            finally:
                registry.close()
            (trouble,) = told.decode(state_store.client.hget(state_keys.NODES, "prometheus"))
            assert (trouble.id, says in trouble.says, bool(trouble.advice)) == ("", True, True), trouble
            assert (says in series.note) == is_charted
            assert not _known(series)


def test_a_server_that_is_gone_ends_on_its_chart(tmp_path: Path) -> None:
    with NodeExporter() as exporter, Prometheus(f"{HOST}:{exporter.port}") as prometheus:
        known = _nodes(prometheus.url)

        def ends() -> tuple[float | None, ...]:
            """The last seconds."""
            return known.past(HOST, PrometheusGrid(int(time.time()) - 4, 1, 5)).cpu

        until(lambda: ends()[-1] is not None, SECONDS, "it is there")
        exporter.stop()
        # A rate over five minutes would draw it on for five minutes.
        until(lambda: not known.newest() and set(ends()) == {None}, SECONDS, "it is gone")
        assert any(value is not None for value in known.past(HOST, PrometheusGrid(int(time.time()) - 120, 1, 121)).cpu)


def test_a_server_is_called_as_it_is_told_apart() -> None:
    named = PrometheusNodes(
        config_nodes.PrometheusConfig(HttpEndpoint("http://p")),
        (config_nodes.NodeConfig("db", instance="10.0.0.9:9100"),),
    )
    instances = ("a:9100", "b:1", "b:2", "[::1]:9100", "plain", "10.0.0.9:9100", "db:9100")
    assert named.ids(instances) == {
        "a:9100": "a",
        "b:1": "b:1",
        "b:2": "b:2",
        "[::1]:9100": "::1",
        "plain": "plain",
        "10.0.0.9:9100": "db",
        "db:9100": "db:9100",
    }


def test_values_stand_where_they_belong() -> None:
    grid = PrometheusGrid(start=100, step=10, count=4)
    rows = (PrometheusSeries({}, {100.0: 1.0, 120.0: 3.0, 999.0: 9.0}), PrometheusSeries({}, {110.0: 2.0, 120.0: 7.0}))
    assert grid.line(rows) == (1.0, 2.0, 3.0, None)
    assert quoted('a"b\\c\n\udcff') == '"a\\"b\\\\c\\n?"'


def test_names_that_nobody_can_write_down_cost_no_other_its_numbers(tmp_path: Path, state_store: Store) -> None:
    names = (HOST, "half \\ud800", "x" * 300, "a/b")
    rows = ",".join(f'{{"metric": {{"instance": "{name}:9100"}}, "value": [1700000000, "50"]}}' for name in names)
    with OddPages() as pages:
        answer = OK + f'{{"status": "success", "data": {{"result": [{rows}]}}}}'.encode()
        registry = _registry(tmp_path, state_store, pages.page(answer), match="")
        try:
            # What it says of their age is far from now, and so none is told; but nothing stumbles.
            assert _scanner(registry).run(now()) == 0
            assert {one.id for one in _nodes(pages.page(answer)).newest()} == {HOST, "half ?", "a/b"}
        finally:
            registry.close()
